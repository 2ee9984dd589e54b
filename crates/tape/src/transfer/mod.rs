//! What moves between the host and a device: tensors that a batch sends once, and reads that the host waits for later.

mod constants;
mod pending_read;

pub use crate::capture::from_host;
pub use constants::Constants;
pub use pending_read::PendingRead;
