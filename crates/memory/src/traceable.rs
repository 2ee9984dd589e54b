//! What is traced: a model that can be built on any device, and batches of any shape for it.

use burn::tensor::Device;
use plimsoll_core::BatchShape;
use plimsoll_tape::{Pass, Task};

/// A model in question, before there is one.
///
/// The planner builds it on a recording device, where the sizes of its parameters count and their values do not.
pub trait Traceable {
    /// The model with its loss.
    type Task: Task;

    /// The model on `device`. First values may be left out: nobody reads them.
    fn init(&self, device: &Device) -> Self::Task;

    /// A batch of `shape` whose samples are all as long as the shape says: the worst that it can be.
    fn batch(&self, shape: BatchShape) -> <Self::Task as Task>::Batch;

    /// What is done with a batch when a run validates, by a model outside the tape. The loss, unless the model says
    /// otherwise: some read or speak instead.
    fn validate(&self, task: &Self::Task, batch: &<Self::Task as Task>::Tensors) {
        let _ = task.loss(batch, &Pass::plain());
    }
}
