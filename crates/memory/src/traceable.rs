//! A model that can be traced: it can be built on any device, and it has batches of any shape.

use burn::tensor::Device;
use plimsoll_core::BatchShape;
use plimsoll_tape::{Pass, Task};

/// Builds a model and its largest batches for a trace.
///
/// The planner builds the model on a recording device, which uses the sizes of the parameters but not their values.
pub trait Traceable {
    /// Type of the model with its loss.
    type Task: Task;

    /// Builds the model on `device`. Its parameters need no initial values.
    fn init(&self, device: &Device) -> Self::Task;

    /// Makes a batch in which every sample has the full length of `shape`, so that the batch needs the most memory.
    fn batch(&self, shape: BatchShape) -> <Self::Task as Task>::Batch;

    /// Validates one batch, without gradients. By default this computes the loss; override it for a model that
    /// validates in another way, such as one that decodes.
    fn validate(&self, task: &Self::Task, batch: &<Self::Task as Task>::Tensors) {
        let _ = task.loss(batch, &Pass::plain());
    }
}
