//! Readings of GPUs and host at one moment: each value with its source, or with the reason why it is missing.
//!
//! A missing value is never zero, and one failed reading never hides another.

mod alerts;
mod gpm;
mod host_reader;
mod machine;
mod monitor;
mod numbers;
mod nvml_error;
mod nvml_reader;
mod reading;
mod recorder;
mod recording;
mod replay;
mod sampler;
mod series;
mod statistics;
mod summary;
#[cfg(test)]
mod tests;
mod throttling;
mod trace;
mod watched;

use std::fmt;

use plimsoll_core::Bytes;
use serde::{Deserialize, Serialize};

pub use alerts::{Alert, AlertKind, AlertLimits, Alerts};
pub use machine::MachineSource;
pub use monitor::Monitor;
pub use numbers::{NumberReading, NumberUnit};
pub use reading::{Missing, Origin, Reading};
pub use recorder::SampleRecorder;
pub use recording::SampleReader;
pub use replay::Replay;
pub use sampler::{SampleSource, Sampler};
pub use statistics::Statistics;
pub use summary::{GpuSummary, MonitorCost, MonitorSummary, NumberSummary};
pub(crate) use throttling::Stretch;
pub(crate) use trace::{GpuTrace, Numbers, SampleTrace};
pub use watched::WatchedProcess;

/// Readings of a machine at one moment.
///
/// In JSON it has at least a time, a host and a list of GPUs. Any other object is no sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample in seconds since 1970.
    pub time: f64,
    /// Readings of the host.
    pub host: HostSample,
    /// Readings of the GPUs, in the order of NVML. Empty on a machine without GPUs.
    pub gpus: Vec<GpuSample>,
    /// Reason why there are no GPUs; `None` if there are GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_gpu: Option<String>,
}

/// Readings of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSample {
    /// Use of all processors that this process can run on, from 0 to 1.
    pub cpu: Reading<f64>,
    /// Processors that this process uses, such as 1.5.
    pub own_cpus: Reading<f64>,
    /// Processors that other processes use.
    pub other_cpus: Reading<f64>,
    /// Number of processors that this process can run on.
    pub cpus: Reading<u64>,
    /// Memory that this process can use in total: the limit of its control group, or the memory of the host.
    pub memory_total: Reading<Bytes>,
    /// Memory that can still be allocated.
    pub memory_available: Reading<Bytes>,
    /// Resident memory of this process.
    pub own_memory: Reading<Bytes>,
    /// Bytes a second that this process reads from disks.
    pub disk_read: Reading<f64>,
    /// Bytes a second that this process writes to disks.
    pub disk_written: Reading<f64>,
}

/// Readings of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSample {
    /// Index in the order of NVML.
    pub index: u32,
    /// Permanent identifier: `GPU-` and a UUID. Empty if the GPU has never answered.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Index in CUDA of this process; `None` if CUDA does not offer the GPU.
    pub cuda_index: Option<usize>,
    /// Share of the time in which at least one kernel ran, from 0 to 1. It does not say how much of the GPU worked.
    pub utilization: Reading<f64>,
    /// Share of the time in which the memory of the GPU was read or written, from 0 to 1.
    pub memory_utilization: Reading<f64>,
    /// Share of the multiprocessors that had work, from 0 to 1 (GPM counter).
    pub sm_active: Reading<f64>,
    /// Share of the time in which tensor cores worked, from 0 to 1 (GPM counter).
    pub tensor_active: Reading<f64>,
    /// Share of the memory bandwidth that was used, from 0 to 1 (GPM counter).
    pub dram_active: Reading<f64>,
    /// Memory that the GPU has.
    pub memory_total: Reading<Bytes>,
    /// Memory that processes hold.
    pub memory_used: Reading<Bytes>,
    /// Memory that is free.
    pub memory_free: Reading<Bytes>,
    /// Power that the GPU draws, in watts.
    pub power: Reading<f64>,
    /// Limit of the power, in watts.
    pub power_limit: Reading<f64>,
    /// Temperature in degrees Celsius.
    pub temperature: Reading<f64>,
    /// Current clock of the multiprocessors, in MHz.
    pub sm_clock: Reading<f64>,
    /// Highest clock of the multiprocessors, in MHz.
    pub sm_clock_max: Reading<f64>,
    /// Reasons why the clock is below its highest value. Idleness and limits that a user has set do not count.
    pub throttle: Reading<Vec<ThrottleReason>>,
    /// Bytes a second that the GPU receives over PCIe.
    pub pcie_received: Reading<f64>,
    /// Bytes a second that the GPU sends over PCIe.
    pub pcie_sent: Reading<f64>,
    /// Number of memory errors that could not be corrected since the driver was loaded.
    pub ecc_errors: Reading<u64>,
    /// Processes that hold memory of the GPU.
    pub processes: Reading<Vec<SampledProcess>>,
    /// Whether the GPU is divided into MIG instances.
    pub mig: Reading<bool>,
    /// MIG instances of the GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceSample>,
}

/// Readings of a MIG instance of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceSample {
    /// Permanent identifier: `MIG-` and a UUID.
    pub uuid: String,
    /// Index in CUDA of this process; `None` if CUDA does not offer the instance.
    pub cuda_index: Option<usize>,
    /// Memory that the instance has.
    pub memory_total: Reading<Bytes>,
    /// Memory that processes hold.
    pub memory_used: Reading<Bytes>,
    /// Memory that is free.
    pub memory_free: Reading<Bytes>,
}

/// Process that holds memory of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SampledProcess {
    /// Process number as the driver reports it, which is outside of every container.
    pub pid: u32,
    /// Name of the program; `None` if this process cannot see it.
    pub name: Option<String>,
    /// GPU memory that the process holds.
    pub memory: Reading<Bytes>,
    /// Whether it is certainly the process that samples.
    pub is_own: bool,
    /// Whether it is certainly another process. In a container that has its own process numbers neither is certain.
    pub is_other: bool,
}

/// Reason why a GPU runs below its highest clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThrottleReason {
    /// The power limit is reached.
    PowerLimit,
    /// The GPU is too hot, and its software limits the clock.
    Heat,
    /// The hardware limits the clock, because of heat or power.
    Hardware,
    /// The power supply asks for less power.
    PowerBrake,
    /// Another GPU of a group that runs at one clock is slower.
    Synchronized,
    /// A reason that this program does not know.
    #[serde(other)]
    Other,
}

impl fmt::Display for ThrottleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PowerLimit => "power limit",
            Self::Heat => "heat",
            Self::Hardware => "slowdown by the hardware",
            Self::PowerBrake => "power brake",
            Self::Synchronized => "a slower GPU of its group",
            Self::Other => "an unknown reason",
        })
    }
}
