//! Numbers of calls to GPUs, of the whole process.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use burn::tensor::TensorData;

/// Uploads since the start of the process.
static UPLOADS: AtomicU64 = AtomicU64::new(0);
/// Kernels that were launched while they were counted.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Counts `data` as an upload to a GPU, and returns it: `Tensor::from_data(uploaded(data), device)`. The number of uploads in a
/// step is a part of what the step costs the host; see [`CallCounter`](crate::gpu::CallCounter).
pub fn uploaded(data: impl Into<TensorData>) -> TensorData {
    UPLOADS.fetch_add(1, Relaxed);
    data.into()
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
