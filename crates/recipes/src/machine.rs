//! Finds the GPU and the memory of this machine.
//!
//! It knows nothing of configurations, because loading one asks here for the memory that selects a shipped file.

use plimsoll_core::Bytes;
use plimsoll_memory::{Gpu, find};
use plimsoll_monitor::{Host, Machine, NvmlGpus};

/// A GPU that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct LocalGpu {
    /// Data of the GPU in the catalog, under the name that the driver gives it.
    pub(crate) gpu: Gpu,
    /// Memory of the GPU that is free now. Other processes hold the rest.
    pub(crate) free: Bytes,
}

/// Finds the first CUDA GPU that this process may use; `None` without one, or if its memory cannot be read.
///
/// A GPU that the catalog does not list gets the speed of listed GPUs with about the same memory.
pub(crate) fn gpu() -> Option<LocalGpu> {
    let gpus = NvmlGpus::load();
    let machine = Machine::from_source(gpus.as_ref().map(|gpus| gpus as _).map_err(Clone::clone));
    let usable = machine.gpus.iter().filter(|report| report.cuda_index.is_some());
    let report = usable.min_by_key(|report| report.cuda_index)?;
    let memory = report.memory.as_ref().ok()?;
    let mut gpu = find(&report.gpu.name).or_else(|_| find(&format!("{} B", memory.total.0))).ok()?;
    gpu.name = report.gpu.name.clone().into();
    Some(LocalGpu { gpu, free: memory.free })
}

/// Returns the memory of the device that a run uses by default: all memory of the local GPU, or else the memory that
/// the host permits a process.
pub(crate) fn memory() -> Bytes {
    gpu().map_or_else(|| Host::read().usable(), |local| local.gpu.memory)
}
