//! Report of all checks, for programs.

use std::time::Duration;

use plimsoll_core::Bytes;
use serde::{Deserialize, Serialize};

use super::check::{CheckStatus, Outcome};
use crate::Machine;

/// Version of the serialized form of [`DoctorReport`]. It grows when a field changes its meaning or goes away.
const SCHEMA_VERSION: u32 = 1;

/// Report of all checks. It prints as a page for people, and serializes for programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// Version of this form: 1.
    pub schema_version: u32,
    /// Time of the report in seconds since 1970.
    pub time: f64,
    /// Short description of the machine; `None` if the program gave none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineSummary>,
    /// Checks, in the order in which they were added.
    pub checks: Vec<CheckReport>,
}

/// Report of one check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Stable name of the check.
    pub id: String,
    /// Subject of the check, for people.
    pub title: String,
    /// Outcome of the check. Its fields stand beside the others in JSON.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Duration of the check in seconds.
    pub seconds: f64,
}

impl CheckReport {
    /// Creates the report of a check that took `duration`.
    pub fn new(id: &str, title: &str, outcome: Outcome, duration: Duration) -> Self {
        Self { id: id.into(), title: title.into(), outcome, seconds: duration.as_secs_f64() }
    }
}

/// Short description of a machine. It holds no names of users, hosts or commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSummary {
    /// Operating system and processor, such as `linux x86_64`.
    pub system: String,
    /// Hardware threads that this process can run on.
    pub logical_cpus: usize,
    /// Installed memory in bytes.
    pub memory: u64,
    /// Memory in bytes that this process can use in total.
    pub usable_memory: u64,
    /// Whether this process runs in a container.
    pub container: bool,
    /// Whether this process runs on Linux under Windows.
    pub wsl: bool,
    /// Version of the NVIDIA driver; `None` without a driver.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub cuda: Option<String>,
    /// Reason why there is no GPU; `None` if there are GPUs.
    pub no_gpu: Option<String>,
    /// GPUs in the order of NVML.
    pub gpus: Vec<DoctorGpu>,
}

/// Short description of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DoctorGpu {
    /// Product name.
    pub name: String,
    /// Installed memory in bytes; `None` if it cannot be read.
    pub memory: Option<u64>,
    /// CUDA compute capability; `None` if not reported.
    pub compute_capability: Option<String>,
    /// Index in CUDA; `None` if CUDA does not offer the GPU.
    pub cuda_index: Option<usize>,
}

impl From<&Machine> for MachineSummary {
    fn from(machine: &Machine) -> Self {
        let gpus = machine.gpus.iter().map(|report| DoctorGpu {
            name: report.gpu.name.clone(),
            memory: report.memory.as_ref().ok().map(|memory| memory.total.0),
            compute_capability: report.gpu.compute_capability.map(|version| version.to_string()),
            cuda_index: report.cuda_index,
        });
        let Bytes(usable_memory) = machine.host.usable();
        Self {
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            logical_cpus: machine.host.logical_cpus,
            memory: machine.host.memory.0,
            usable_memory,
            container: machine.process_env.container,
            wsl: machine.process_env.wsl,
            driver: machine.driver.clone(),
            cuda: machine.cuda.map(|version| version.to_string()),
            no_gpu: machine.no_gpu.as_ref().map(ToString::to_string),
            gpus: gpus.collect(),
        }
    }
}

impl DoctorReport {
    /// Creates a report of `checks` at `time`, in seconds since 1970.
    pub fn new(time: f64, machine: Option<MachineSummary>, checks: Vec<CheckReport>) -> Self {
        Self { schema_version: SCHEMA_VERSION, time, machine, checks }
    }

    /// Returns the number of checks with `status`.
    pub fn count(&self, status: CheckStatus) -> usize {
        self.checks.iter().filter(|check| check.outcome.status == status).count()
    }

    /// Returns the exit code for a program: 0 without warnings, 1 with warnings, 2 with failures.
    pub fn exit_code(&self) -> u8 {
        match self.checks.iter().map(|check| check.outcome.status).max() {
            Some(CheckStatus::Fail) => 2,
            Some(CheckStatus::Warn) => 1,
            Some(CheckStatus::Pass | CheckStatus::Skip) | None => 0,
        }
    }
}
