//! The seam between a model and whoever trains, plans or validates it.

use burn::module::Module;
use burn::tensor::Tensor;
use plimsoll_core::HostBatch;

use crate::{Pass, TensorBatch};

/// A model with the loss it is trained by.
///
/// The loss of a batch is a **sum** over its parts, and [`weight`](Task::weight) says how many parts count, before
/// anything is computed. The trainer divides the one by the other over a whole step, so that the gradient is the same
/// however the step's batch is cut into pieces.
pub trait Task: Module {
    /// How much `batch` weighs in its step, such as its number of tokens. Known without computing anything.
    fn weight(&self, batch: &HostBatch) -> f64;

    /// The sum of the losses of `batch`, computed by the choice and with the randomness of `pass`.
    fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss;
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
    pub cut: Vec<usize>,
}

impl StepLoss {
    /// A loss of one part over all samples.
    pub fn of(sum: Tensor<1>) -> Self {
        Self { sum, parts: Vec::new(), left_out: Vec::new(), cut: Vec::new() }
    }
}
