//! Facts about a GPU, its memory and its processes, and the trait that reads them.

use std::fmt;

use plimsoll_core::{Bytes, DeviceMemory, ProbeError};
use serde::Serialize;

use super::process_env::Unavailable;

/// Source of facts about the GPUs of this machine.
///
/// Two sources exist: the driver ([`NvmlGpus`](crate::NvmlGpus)), and plain data for tests on machines without a GPU
/// ([`FakeGpus`](crate::FakeGpus)). GPUs are identified by UUID and never by index alone, because NVML and CUDA count
/// in different orders.
pub trait GpuSource {
    /// Returns the driver and the GPUs: facts that do not change while the program runs.
    fn inventory(&self) -> GpuInventory;

    /// Returns the current memory of the GPU or MIG instance with this UUID.
    ///
    /// # Errors
    /// If the device does not exist or does not answer.
    fn memory(&self, uuid: &str) -> Result<GpuMemory, ProbeError>;

    /// Returns the processes on the GPU with this UUID, with the process numbers of the driver.
    ///
    /// # Errors
    /// If the driver does not list the processes.
    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, Unavailable>;
}

/// Driver and GPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuInventory {
    /// Version of the NVIDIA driver; `None` if not reported.
    pub driver: Option<String>,
    /// Newest CUDA version that the NVIDIA driver supports; `None` if not reported.
    pub cuda: Option<Version>,
    /// GPUs that answer queries.
    pub gpus: Vec<Gpu>,
    /// GPUs that exist and do not answer queries. They do not hide the GPUs that answer.
    pub lost: Vec<ProbeError>,
}

/// Version of two numbers, such as CUDA 12.8 or compute capability 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Version {
    /// Number of the version before the point.
    pub major: u32,
    /// Number of the version after the point.
    pub minor: u32,
}

/// Facts about a GPU that do not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Index of the GPU in NVML's order, which may differ from CUDA's order.
    pub index: u32,
    /// Permanent identifier of the GPU: `GPU-` and a UUID.
    pub uuid: String,
    /// Address of the GPU on the PCI bus.
    pub pci_bus_id: String,
    /// Product name of the GPU.
    pub name: String,
    /// CUDA compute capability of the GPU: the generation of kernels that the GPU runs. `None` if not reported.
    pub compute_capability: Option<Version>,
    /// Peak memory bandwidth of the GPU, in bytes per second; `None` if not reported.
    pub bandwidth_per_sec: Option<Bytes>,
    /// Whether the GPU is divided into MIG instances. A process then gets one instance and never the whole GPU.
    pub mig: bool,
    /// UUIDs of the MIG instances of the GPU.
    pub instances: Vec<String>,
}

/// Memory of a GPU at one moment. `reserved`, `used` and `free` add up to `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuMemory {
    /// Installed memory of the GPU.
    pub total: Bytes,
    /// GPU memory kept by driver and firmware. No process can allocate it.
    pub reserved: Bytes,
    /// GPU memory held by processes.
    pub used: Bytes,
    /// GPU memory that is free.
    pub free: Bytes,
}

impl GpuMemory {
    /// Creates the memory of a GPU from its size and the reserved and free parts; the rest counts as used.
    ///
    /// NVML's own `used` is ignored: whether it includes `reserved` depends on the call and the driver.
    pub fn new(total: Bytes, reserved: Bytes, free: Bytes) -> Self {
        Self { total, reserved, used: total.saturating_sub(reserved).saturating_sub(free), free }
    }
}

/// Process on a GPU, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Process number in the driver's namespace, which is outside of every container.
    pub pid: u32,
    /// Kind of work that the process does on the GPU.
    pub kind: WorkKind,
    /// GPU memory that the process holds. `None` if the driver does not report the amount, which does not mean zero.
    pub memory: Option<Bytes>,
}

/// Kind of work of a process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Computation without graphics.
    Compute,
    /// Graphics without computation.
    Graphics,
    /// Computation and graphics.
    Both,
}

/// Reason why there is no GPU to report. All of these reasons are normal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGpu {
    /// The library of the NVIDIA driver cannot be loaded.
    #[error("no NVIDIA driver was found ({reason})")]
    Library {
        /// Error message of the library loader.
        reason: String,
    },
    /// The library of the NVIDIA driver exists and the driver does not run.
    #[error("the NVIDIA driver is installed and not running")]
    Driver,
    /// The NVIDIA driver runs and finds no GPU.
    #[error("the NVIDIA driver runs and finds no GPU")]
    Empty,
    /// The NVIDIA driver was updated since the machine started.
    #[error("the NVIDIA driver was updated while it ran: restart the machine")]
    Updated,
    /// The NVIDIA driver rejects the connection.
    #[error("the NVIDIA driver does not answer ({reason})")]
    Refused {
        /// Error message of the NVIDIA driver.
        reason: String,
    },
}

/// Handle to a GPU or MIG instance whose memory can be read.
pub struct GpuHandle<'a> {
    source: &'a dyn GpuSource,
    uuid: String,
}

impl<'a> GpuHandle<'a> {
    /// Opens the GPU or MIG instance with this UUID. [`VisibleGpus`](crate::VisibleGpus) lists the devices that CUDA
    /// offers.
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

    /// Returns the current memory of the device.
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
