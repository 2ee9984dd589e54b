//! Numbers of calls to GPUs, of the whole process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Uploads since the start of the process.
static UPLOADS: AtomicU64 = AtomicU64::new(0);
/// Kernels that were launched while they were counted.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Counts an upload.
pub(crate) fn count_upload() {
    UPLOADS.fetch_add(1, Relaxed);
}

/// Counts a kernel.
#[cfg(feature = "cube")]
pub(super) fn count_launch() {
    LAUNCHES.fetch_add(1, Relaxed);
}

pub(super) fn uploads() -> u64 {
    UPLOADS.load(Relaxed)
}

pub(super) fn launches() -> u64 {
    LAUNCHES.load(Relaxed)
}
