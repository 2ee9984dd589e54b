//! Reads that begin before the host waits for them.

use std::pin::Pin;

use burn::tensor::{ExecutionError, Tensor, TensorData};
use futures_lite::future::{Future, block_on, poll_once};

use crate::bridge::without_autodiff;

type Data = Result<TensorData, ExecutionError>;

/// Values of a tensor on their way from the device to the host.
///
/// The copy is put into the queue of the device at once. Work that is submitted before [`wait`](Self::wait) runs while the
/// host uses the values. On the CPU nothing is copied, and there is nothing to wait for.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use plimsoll_tape::transfer::PendingRead;
///
/// let x = Tensor::<1>::from_floats([1.0, 2.0], &Device::flex());
/// let read = PendingRead::begin(x.clone());
/// let next = x * 2.0;
/// assert_eq!(read.wait()?.try_to_vec::<f32>().unwrap(), [1.0, 2.0]);
/// assert_eq!(next.into_data().try_to_vec::<f32>().unwrap(), [2.0, 4.0]);
/// # Ok::<(), burn::tensor::ExecutionError>(())
/// ```
pub struct PendingRead(Read);

enum Read {
    Done(Data),
    Running(Pin<Box<dyn Future<Output = Data> + Send>>),
}

impl PendingRead {
    /// Begins to read `x`; its gradient does not matter.
    pub fn begin<const D: usize>(x: Tensor<D>) -> Self {
        let mut read: Pin<Box<dyn Future<Output = Data> + Send>> = Box::pin(without_autodiff(x).into_data_async());
        // A future does nothing before it is polled.
        Self(match block_on(poll_once(&mut read)) {
            Some(data) => Read::Done(data),
            None => Read::Running(read),
        })
    }

    /// Waits for the values.
    ///
    /// # Errors
    /// If the device could not compute them.
    pub fn wait(self) -> Result<TensorData, ExecutionError> {
        match self.0 {
            Read::Done(data) => data,
            Read::Running(read) => block_on(read),
        }
    }
}

impl std::fmt::Debug for PendingRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self.0, Read::Done(_)) { "PendingRead(done)" } else { "PendingRead(running)" })
    }
}
