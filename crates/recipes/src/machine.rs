//! Finds the GPU and the memory of this machine.
//!
//! It knows nothing of configurations, because loading one asks here for the memory that selects a shipped file.

use plimsoll_core::{Bytes, DeviceMemory, ProbeError};
use plimsoll_memory::{Gpu, find};
use plimsoll_monitor::{CudaEnvironment, GpuMemory, GpuSource, Host, Machine, NvmlGpus};

/// A GPU that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct LocalGpu {
    /// Data of the GPU in the catalog, under the name that the driver gives it.
    pub(crate) gpu: Gpu,
    /// Memory of the GPU that is free now. Other processes hold the rest.
    pub(crate) free: Bytes,
    /// Memory of the GPU that CUDA processes can share.
    pub(crate) total: Bytes,
}

/// Finds the GPU that is number `index` in CUDA; `None` if there is none, or if its memory cannot be read.
///
/// A GPU that the catalog does not list gets the speed of listed GPUs with about the same memory.
pub(crate) fn gpu(index: usize) -> Option<LocalGpu> {
    let gpus = NvmlGpus::load();
    gpu_of(&Machine::from_source(gpus.as_ref().map(|gpus| gpus as _).map_err(Clone::clone)), index)
}

/// Finds the GPU of `machine` that is number `index` in CUDA: a whole GPU, or a MIG instance of one.
fn gpu_of(machine: &Machine, index: usize) -> Option<LocalGpu> {
    let found = |name: &str, memory: &GpuMemory| {
        let by_memory = || find(&format!("{} B", memory.total.0));
        let mut gpu = find(name).or_else(|_| by_memory()).ok()?;
        gpu.name = name.to_string().into();
        let total = Bytes(memory.total.0.saturating_sub(memory.reserved.0));
        Some(LocalGpu { gpu, free: memory.free, total })
    };
    machine.gpus.iter().find_map(|report| {
        if report.cuda_index == Some(index) {
            return found(&report.gpu.name, report.memory.as_ref().ok()?);
        }
        let instance = report.instances.iter().find(|instance| instance.cuda_index == Some(index))?;
        found(&report.gpu.name, instance.memory.as_ref().ok()?)
    })
}

/// Reads the memory that is free on a GPU, while a run trains on it.
pub(crate) struct GpuFreeMemory {
    gpus: NvmlGpus,
    uuid: String,
}

impl GpuFreeMemory {
    /// Opens the GPU or MIG instance that is number `index` in CUDA; `None` without a driver that says which one it is.
    pub(crate) fn open(index: usize) -> Option<Self> {
        let gpus = NvmlGpus::load().ok()?;
        let visible = CudaEnvironment::from_env().visible(&gpus.inventory().gpus);
        let uuid = visible.uuids.get(index).filter(|_| visible.order_is_certain)?.clone();
        Some(Self { gpus, uuid })
    }
}

impl DeviceMemory for GpuFreeMemory {
    fn free(&self) -> Result<Bytes, ProbeError> {
        Ok(self.gpus.memory(&self.uuid)?.free)
    }
}

/// Returns the memory of the device that a run uses by default: all memory of the first local GPU, or else the memory
/// that the host permits a process.
pub(crate) fn memory() -> Bytes {
    gpu(0).map_or_else(|| Host::read().usable(), |local| local.gpu.memory)
}

#[cfg(test)]
mod tests {
    use plimsoll_monitor::FakeGpus;

    use super::*;

    #[test]
    fn the_gpu_of_a_number_is_that_of_cuda() {
        let memory = |total, free| GpuMemory::new(Bytes::gib(total), Bytes(0), Bytes::gib(free));
        let gpus = FakeGpus::default().with_gpu("NVIDIA T4", memory(16, 2)).with_gpu("NVIDIA H200", memory(140, 139));
        let machine = Machine::from_source(Ok(&gpus));
        for report in &machine.gpus {
            let Some(index) = report.cuda_index else { continue };
            let found = gpu_of(&machine, index).unwrap();
            assert_eq!(found.gpu.name, report.gpu.name);
            assert_eq!(found.free, report.memory.as_ref().unwrap().free);
        }
        assert!(gpu_of(&machine, 7).is_none());
        assert!(gpu_of(&Machine::from_source(Ok(&FakeGpus::default())), 0).is_none());
    }
}
