//! A GPU, its memory and its processes, and the trait through which they are read.

use std::fmt;

use plimsoll_core::{Bytes, DeviceMemory, ProbeError};
use serde::Serialize;

use super::process_env::Unavailable;

/// A source of facts about the GPUs of this machine.
///
/// There are two: the driver ([`NvmlGpus`](crate::NvmlGpus)), and plain data for tests on machines without a GPU
/// ([`FakeGpus`](crate::FakeGpus)). GPUs are identified by UUID and never by index alone, because NVML and CUDA count
/// in different orders.
pub trait GpuSource {
    /// The driver and the GPUs: facts that do not change while the program runs.
    fn inventory(&self) -> GpuInventory;

    /// Current memory of the GPU or MIG instance with this UUID.
    ///
    /// # Errors
    /// If the device does not exist or does not answer.
    fn memory(&self, uuid: &str) -> Result<GpuMemory, ProbeError>;

    /// Processes on the GPU with this UUID, with the numbers that the driver uses.
    ///
    /// # Errors
    /// If the driver does not list them.
    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, Unavailable>;
}

/// The driver and the GPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuInventory {
    /// Version of the driver, if it reports one.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda: Option<Version>,
    /// GPUs that answer.
    pub gpus: Vec<Gpu>,
    /// GPUs that exist and do not answer. They do not hide the others.
    pub lost: Vec<ProbeError>,
}

/// A version of two numbers, such as CUDA 12.8 or compute capability 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// Number before the point.
    pub major: u32,
    /// Number after the point.
    pub minor: u32,
}

/// Facts about a GPU that do not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Index in NVML's order, which may differ from CUDA's.
    pub index: u32,
    /// Permanent identifier: `GPU-` and a UUID.
    pub uuid: String,
    /// Address on the PCI bus.
    pub pci_bus_id: String,
    /// Product name.
    pub name: String,
    /// CUDA compute capability: the generation of kernels that it runs.
    pub compute_capability: Option<Version>,
    /// Peak memory bandwidth, in bytes per second.
    pub bandwidth_per_sec: Option<Bytes>,
    /// Whether it is divided into MIG instances. A process then gets one instance and never the whole GPU.
    pub mig: bool,
    /// UUIDs of the MIG instances.
    pub instances: Vec<String>,
}

/// Memory of a GPU at one moment. `reserved`, `used` and `free` add up to `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuMemory {
    /// All memory.
    pub total: Bytes,
    /// Memory kept by driver and firmware. No process holds it or can have it.
    pub reserved: Bytes,
    /// Memory held by processes.
    pub used: Bytes,
    /// Memory that is free.
    pub free: Bytes,
}

impl GpuMemory {
    /// Memory with the given parts; the rest counts as used.
    ///
    /// NVML's own `used` is ignored: whether it includes `reserved` depends on the call and the driver.
    pub fn new(total: Bytes, reserved: Bytes, free: Bytes) -> Self {
        Self { total, reserved, used: total.saturating_sub(reserved).saturating_sub(free), free }
    }
}

/// A process on a GPU, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Process number in the driver's namespace, which is outside of every container.
    pub pid: u32,
    /// Kind of its work.
    pub kind: WorkKind,
    /// Memory that it holds. `None` if the driver does not say, which does not mean zero.
    pub memory: Option<Bytes>,
}

/// Kind of work of a process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// It computes.
    Compute,
    /// It draws.
    Graphics,
    /// It computes and draws.
    Both,
}

/// Why there is no GPU to report. All of these are normal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGpu {
    /// The driver's library cannot be loaded.
    #[error("no NVIDIA driver was found ({reason})")]
    Library {
        /// Message of the loader.
        reason: String,
    },
    /// The library exists and the driver does not run.
    #[error("the NVIDIA driver is installed and not running")]
    Driver,
    /// The driver runs and finds no GPU.
    #[error("the NVIDIA driver runs and finds no GPU")]
    Empty,
    /// The driver was updated since the machine started.
    #[error("the NVIDIA driver was updated while it ran: restart the machine")]
    Updated,
    /// The driver refuses the connection.
    #[error("the NVIDIA driver does not answer ({reason})")]
    Refused {
        /// Message of the driver.
        reason: String,
    },
}

/// A GPU or MIG instance whose memory can be read.
pub struct GpuHandle<'a> {
    source: &'a dyn GpuSource,
    uuid: String,
}

impl<'a> GpuHandle<'a> {
    /// A handle to the device with this UUID. [`VisibleGpus`](crate::VisibleGpus) lists those that CUDA offers.
    ///
    /// # Errors
    /// If there is no such device, or if it is a GPU that is divided into MIG instances: no process can use its free
    /// memory as a whole.
    pub fn open(source: &'a dyn GpuSource, uuid: &str) -> Result<Self, ProbeError> {
        let error = |reason: &str| ProbeError { device: uuid.into(), reason: reason.into() };
        let gpus = source.inventory().gpus;
        let is_instance = gpus.iter().any(|gpu| gpu.instances.iter().any(|instance| instance == uuid));
        match gpus.iter().find(|gpu| gpu.uuid == uuid) {
            Some(gpu) if gpu.mig => Err(error("MIG is on: name one of its instances in CUDA_VISIBLE_DEVICES")),
            None if !is_instance => Err(error("this machine has no such GPU")),
            _ => Ok(Self { source, uuid: uuid.into() }),
        }
    }

    /// Its current memory.
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn memory(&self) -> Result<GpuMemory, ProbeError> {
        self.source.memory(&self.uuid)
    }
}

impl DeviceMemory for GpuHandle<'_> {
    fn free(&self) -> Result<Bytes, ProbeError> {
        Ok(self.memory()?.free)
    }
}

impl fmt::Debug for GpuHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GpuHandle").field(&self.uuid).finish()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compute => "compute",
            Self::Graphics => "graphics",
            Self::Both => "both",
        })
    }
}
