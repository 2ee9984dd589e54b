//! Replicas: several copies of a model that train together, in processes, on threads or on GPUs.

mod gpu;
mod host;
mod thread;

use burn::tensor::Tensor;
use plimsoll_core::{Collective, CollectiveError, SingleReplica};

pub use gpu::GpuReplica;
pub use host::HostReplica;
pub use thread::ThreadReplica;

/// A [`Collective`] that also sums tensors over all replicas.
pub trait Replica: Collective {
    /// Sums `tensor` over all replicas, with the same bits on each replica.
    ///
    /// # Errors
    /// If another replica is gone, or this one fails. A replica that fails has reported it to the others.
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError>;

    /// Sums each of `tensors` over all replicas, as [`all_reduce`](Self::all_reduce) does. A replica for which few large
    /// messages are faster than many small ones sums all at once.
    ///
    /// # Errors
    /// As for [`all_reduce`](Self::all_reduce).
    fn all_reduce_each(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CollectiveError> {
        tensors.into_iter().map(|tensor| self.all_reduce(tensor)).collect()
    }

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

    fn all_reduce_each(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CollectiveError> {
        (**self).all_reduce_each(tensors)
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
