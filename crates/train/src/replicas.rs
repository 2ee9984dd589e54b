//! Replicas: several copies of a model that train together, on threads or on GPUs.

mod gpu;
mod thread;

use burn::tensor::Tensor;
use plimsoll_core::{Collective, CollectiveError, SingleReplica};

pub use gpu::GpuReplica;
pub use thread::ThreadReplica;

/// A [`Collective`] that also sums tensors over all replicas.
pub trait Replica: Collective {
    /// Sums `tensor` over all replicas, with the same bits on each replica.
    ///
    /// # Errors
    /// If another replica is gone, or this one fails. A replica that fails has reported it to the others.
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError>;

    /// Returns whether a sum that another replica did not start can keep the device of this replica busy for ever. After
    /// a failure nothing can then be read from the device.
    fn may_block_device(&self) -> bool {
        false
    }
}

impl<R: Replica + ?Sized> Replica for Box<R> {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        (**self).all_reduce(tensor)
    }

    fn may_block_device(&self) -> bool {
        (**self).may_block_device()
    }
}

impl Replica for SingleReplica {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        Ok(tensor)
    }
}
