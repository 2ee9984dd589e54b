//! The seam between a model and whoever trains, plans or validates it.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::Batch;

use crate::Pass;

/// A model with the loss it is trained by.
///
/// The loss of a batch is a **sum** over its parts, and [`weight`](Task::weight) says how many parts count, before
/// anything is computed. The trainer divides the one by the other over a whole step, so that the gradient is the same
/// however the step's batch is cut into pieces.
///
/// The batch is of the model's own type. A model of speech takes a [`HostBatch`](plimsoll_core::HostBatch) and sends it
/// as a [`TensorBatch`](crate::TensorBatch).
///
/// ```
/// use burn::module::Module;
/// use burn::nn::Linear;
/// use burn::tensor::{Device, Tensor, TensorData};
/// use plimsoll_core::{Batch, SampleId};
/// use plimsoll_tape::{Pass, StepLoss, Task};
///
/// /// Points `[x, y]`.
/// #[derive(Clone)]
/// struct Points(Vec<SampleId>, Vec<[f32; 2]>);
///
/// impl Batch for Points {
///     fn ids(&self) -> &[SampleId] {
///         &self.0
///     }
///     fn select(&self, places: &[usize]) -> Self {
///         let ids = places.iter().map(|&place| self.0[place]).collect();
///         Self(ids, places.iter().map(|&place| self.1[place]).collect())
///     }
/// }
///
/// /// A line through the points.
/// #[derive(Module, Debug)]
/// struct Line {
///     layer: Linear,
/// }
///
/// impl Task for Line {
///     type Batch = Points;
///     type Tensors = Tensor<2>;
///
///     fn send(batch: &Points, device: &Device) -> Tensor<2> {
///         Tensor::from_data(TensorData::new(batch.1.concat(), [batch.len(), 2]), device)
///     }
///     fn loss(&self, points: &Tensor<2>, _: &Pass) -> StepLoss {
///         let (x, y) = (points.clone().narrow(1, 0, 1), points.clone().narrow(1, 1, 1));
///         StepLoss::new((self.layer.forward(x) - y).square().sum())
///     }
/// }
/// ```
pub trait Task: Module {
    /// A batch in host memory.
    type Batch: Batch;
    /// The same batch on a device.
    type Tensors;

    /// Sends `batch` to `device`.
    fn send(batch: &Self::Batch, device: &Device) -> Self::Tensors;

    /// How much `batch` weighs in its step, such as its number of tokens. Known without computing anything.
    ///
    /// By default the number of samples, for a loss that is a sum over samples.
    fn weight(&self, batch: &Self::Batch) -> f64 {
        batch.len() as f64
    }

    /// The sum of the losses of `batch`, computed by the choice and with the randomness of `pass`.
    fn loss(&self, batch: &Self::Tensors, pass: &Pass) -> StepLoss;
}

/// What a model says of one piece of a step.
#[derive(Debug)]
pub struct StepLoss {
    /// The sum of the losses, on the tape.
    pub sum: Tensor<1>,
    /// What the sum is made of, by name, for whoever watches; each divided by the step's weight is told beside the loss.
    pub parts: Vec<(&'static str, Tensor<1>)>,
    /// Places in the batch of samples that no loss could be computed for, and that were left out of the sum.
    pub left_out: Vec<usize>,
    /// Places in the batch of samples that a length policy cut short.
    pub truncated: Vec<usize>,
}

impl StepLoss {
    /// A loss of one part over all samples.
    pub fn new(sum: Tensor<1>) -> Self {
        Self { sum, parts: Vec::new(), left_out: Vec::new(), truncated: Vec::new() }
    }
}
