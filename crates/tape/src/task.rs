//! Trait that a model implements to be trained, planned and validated.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use plimsoll_core::Batch;

use crate::Pass;

/// Model with its training loss.
///
/// The loss of a batch is a **sum** over its parts (such as tokens), and [`weight`](Task::weight) is the number of
/// parts, known before the computation. The trainer divides the sum of the losses of a step by the sum of its weights.
/// The gradient is therefore the same for every split of a batch into micro-batches.
///
/// Each model has its own batch type. A speech model takes a [`HostBatch`](plimsoll_core::HostBatch) and copies it to
/// the device as a [`TensorBatch`](crate::TensorBatch).
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
///     fn select(&self, indices: &[usize]) -> Self {
///         let ids = indices.iter().map(|&index| self.0[index]).collect();
///         Self(ids, indices.iter().map(|&index| self.1[index]).collect())
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
    /// Type of a batch in host memory.
    type Batch: Batch;
    /// Type of a batch on a device.
    type Tensors;

    /// Copies `batch` to `device`.
    fn send(batch: &Self::Batch, device: &Device) -> Self::Tensors;

    /// Returns the weight of `batch`: the number of parts over which its loss is a sum, such as tokens. The weight must
    /// follow from the host batch alone.
    ///
    /// The default is the number of samples, for a loss that is a sum over samples.
    fn weight(&self, batch: &Self::Batch) -> f64 {
        batch.len() as f64
    }

    /// Computes the sum of the losses of the samples in `batch`, with the settings and the randomness of `pass`.
    fn loss(&self, batch: &Self::Tensors, pass: &Pass) -> StepLoss;
}

/// Loss of one micro-batch.
#[derive(Debug)]
pub struct StepLoss {
    /// Sum of the losses of the samples, with autodiff.
    pub sum: Tensor<1>,
    /// Terms of the loss by name, such as `ctc`, for the report of the step. The trainer divides each term by the sum
    /// of the weights of the micro-batches of the step; see [`Task::weight`].
    pub parts: Vec<(&'static str, Tensor<1>)>,
    /// Indices of samples that have no finite loss and are not in the sum.
    pub left_out: Vec<usize>,
    /// Indices of samples that a length policy truncated.
    pub truncated: Vec<usize>,
    /// Number of reads from the device for which the computation waited, such as for a loss that is computed on the host.
    pub reads: u32,
}

impl StepLoss {
    /// Creates a loss over all samples, without terms.
    pub fn new(sum: Tensor<1>) -> Self {
        Self { sum, parts: Vec::new(), left_out: Vec::new(), truncated: Vec::new(), reads: 0 }
    }
}
