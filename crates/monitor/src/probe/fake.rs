//! GPUs made of plain data, for tests.

use std::collections::BTreeMap;

use plimsoll_core::ProbeError;

use super::gpu::{Gpu, GpuInventory, GpuMemory, GpuProcess, GpuSource, Version};
use super::process_env::Unavailable;

/// GPUs made of plain data, for tests on machines without a GPU.
///
/// ```
/// use plimsoll_core::{Bytes, DeviceMemory};
/// use plimsoll_monitor::{FakeGpus, GpuHandle, GpuMemory};
///
/// let memory = GpuMemory::new(Bytes::gib(16), Bytes::mib(512), Bytes::gib(12));
/// let gpus = FakeGpus::default().with_gpu("NVIDIA T4", memory);
/// let handle = GpuHandle::open(&gpus, &gpus.inventory.gpus[0].uuid)?;
/// assert_eq!(handle.free()?, Bytes::gib(12));
/// # Ok::<(), plimsoll_core::ProbeError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FakeGpus {
    /// Driver and GPUs that the source reports.
    pub inventory: GpuInventory,
    /// Memory that the source reports for each UUID.
    pub memory: BTreeMap<String, Result<GpuMemory, ProbeError>>,
    /// Processes that the source reports for each UUID.
    pub processes: BTreeMap<String, Result<Vec<GpuProcess>, Unavailable>>,
}

impl FakeGpus {
    /// Adds an idle GPU. The first GPU is `GPU-0a000000-0000-0000-0000-000000000000`, the UUID of the next starts with
    /// `GPU-1a`.
    #[must_use]
    pub fn with_gpu(mut self, name: &str, memory: GpuMemory) -> Self {
        let index = self.inventory.gpus.len() as u32;
        let uuid = format!("GPU-{index:x}a000000-0000-0000-0000-000000000000");
        self.memory.insert(uuid.clone(), Ok(memory));
        self.processes.insert(uuid.clone(), Ok(Vec::new()));
        self.inventory.gpus.push(Gpu {
            index,
            uuid,
            pci_bus_id: format!("00000000:{:02X}:00.0", index + 1),
            name: name.into(),
            compute_capability: Some(Version { major: 8, minor: 0 }),
            bandwidth_per_sec: None,
            mig: false,
            instances: Vec::new(),
        });
        self
    }

    /// Adds a process to the GPU that was added last.
    ///
    /// # Panics
    /// If there is no GPU yet, or if its processes were set to be unavailable.
    #[must_use]
    pub fn with_process(mut self, process: GpuProcess) -> Self {
        let uuid = &self.inventory.gpus.last().expect("a GPU comes before its processes").uuid;
        let processes = self.processes.get_mut(uuid).and_then(|processes| processes.as_mut().ok());
        processes.expect("the processes of the GPU are available").push(process);
        self
    }
}

impl GpuSource for FakeGpus {
    fn inventory(&self) -> GpuInventory {
        self.inventory.clone()
    }

    fn memory(&self, uuid: &str) -> Result<GpuMemory, ProbeError> {
        let unknown = || Err(ProbeError { device: uuid.into(), reason: "there is no such GPU".into() });
        self.memory.get(uuid).cloned().unwrap_or_else(unknown)
    }

    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, Unavailable> {
        self.processes.get(uuid).cloned().unwrap_or(Err(Unavailable::Driver))
    }
}
