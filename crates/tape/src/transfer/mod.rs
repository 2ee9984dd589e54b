//! What moves between the host and a device: tensors that a batch sends once, and reads that the host waits for later.

mod constants;

use burn::tensor::Device;

pub use crate::capture::from_host;
pub use crate::gpu::counts::uploaded;
pub use constants::Constants;

/// Sends the operations that are queued for `device` to it, without waiting for their results.
///
/// Burn fuses what is queued. Some mixtures it does not fuse at all, such as a cast of parameters between two convolutions: it
/// computes each operation by itself, and keeps what lies between them. What is sent before and after is fused by itself.
pub fn send_queued(device: &Device) {
    crate::capture::record_sending();
    // A device that has failed says so at the next read.
    let _ = device.clone().inner().flush();
}
