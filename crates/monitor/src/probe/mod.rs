//! Report of this machine at one moment: GPUs, their memory and processes, and the host.
//!
//! A machine without GPU, a missing driver and a GPU without answer are normal cases: each case is a value with a
//! reason, and a fact that cannot be read never hides another fact. An unknown fact is never reported as zero.

mod fake;
mod gpu;
mod nvml;
mod process;
mod process_env;
mod table;
#[cfg(test)]
mod tests;
mod visible;

use std::fmt::Display;

use plimsoll_core::ProbeError;
use serde::{Serialize, Serializer};

pub use self::fake::FakeGpus;
pub use self::gpu::{Gpu, GpuHandle, GpuInventory, GpuMemory, GpuProcess, GpuSource, NoGpu, Version, WorkKind};
pub use self::nvml::NvmlGpus;
pub(crate) use self::nvml::device_processes;
use self::process::{ProcessOwner, ProcessTable};
pub use self::process::{ProcessReport, Unaccounted};
pub use self::process_env::{ProcessEnv, Unavailable};
pub use self::visible::{CudaEnvironment, VisibleGpus};
use crate::Host;

/// Report of this machine at one moment.
///
/// The report prints as a page for people and serializes for programs. An unknown fact serializes to
/// `{"unseen": "why"}`.
///
/// ```
/// use plimsoll_core::Bytes;
/// use plimsoll_monitor::{FakeGpus, GpuMemory, Machine};
///
/// let memory = GpuMemory::new(Bytes::gib(16), Bytes::mib(512), Bytes::gib(12));
/// let machine = Machine::from_source(Ok(&FakeGpus::default().with_gpu("NVIDIA T4", memory)));
/// assert_eq!(machine.gpus[0].memory, Ok(memory));
/// assert!(machine.to_string().contains("16 GiB in all"));
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Memory and processors of the host.
    pub host: Host,
    /// Environment in which this process runs, such as a container.
    #[serde(rename = "place")]
    pub process_env: ProcessEnv,
    /// Version of the NVIDIA driver; `None` without a driver, or if not reported.
    pub driver: Option<String>,
    /// Newest CUDA version that the NVIDIA driver supports; `None` without a driver, or if not reported.
    pub cuda: Option<Version>,
    /// Environment variables with which a user selects GPUs for CUDA.
    pub environment: CudaEnvironment,
    /// GPUs that CUDA offers to this process.
    pub visible: VisibleGpus,
    /// All GPUs that answer queries.
    #[serde(rename = "cards")]
    pub gpus: Vec<GpuReport>,
    /// GPUs that exist and do not answer queries.
    #[serde(serialize_with = "as_texts")]
    pub lost: Vec<ProbeError>,
    /// Reason why there is no GPU; `None` if there are GPUs.
    #[serde(rename = "no_cards", serialize_with = "as_text")]
    pub no_gpu: Option<NoGpu>,
}

/// Report of a GPU at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct GpuReport {
    /// Facts about the GPU that do not change.
    #[serde(rename = "card")]
    pub gpu: Gpu,
    /// Index of the GPU in CUDA; `None` if CUDA does not offer the GPU. See [`VisibleGpus::order_is_certain`].
    pub cuda_index: Option<usize>,
    /// Current memory of the GPU.
    #[serde(serialize_with = "fact")]
    pub memory: Result<GpuMemory, ProbeError>,
    /// Processes on the GPU: first the processes of unknown size, then the largest first.
    #[serde(rename = "holders", serialize_with = "fact")]
    pub processes: Result<Vec<ProcessReport>, Unavailable>,
    /// Used GPU memory that no listed process accounts for; `None` if the memory of the GPU cannot be read.
    pub unaccounted: Option<Unaccounted>,
    /// MIG instances of the GPU.
    pub instances: Vec<InstanceReport>,
}

/// Report of a MIG instance at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceReport {
    /// Identifier of the MIG instance: `MIG-` and a UUID.
    pub uuid: String,
    /// Index of the MIG instance in CUDA; `None` if CUDA does not offer the instance.
    pub cuda_index: Option<usize>,
    /// Current memory of the MIG instance.
    #[serde(serialize_with = "fact")]
    pub memory: Result<GpuMemory, ProbeError>,
}

impl Machine {
    /// Reads this machine, and its GPUs through the NVIDIA driver if there is one.
    pub fn probe() -> Self {
        match NvmlGpus::load() {
            Ok(gpus) => Self::from_source(Ok(&gpus)),
            Err(why) => Self::from_source(Err(why)),
        }
    }

    /// Reads this machine, and the GPUs of `source`. Without a source, the report holds the reason why there is no GPU.
    pub fn from_source(source: Result<&dyn GpuSource, NoGpu>) -> Self {
        let process_env = ProcessEnv::detect();
        let mut table = ProcessTable::open(process_env);
        let mut owner_of = |pid| table.owner_of(pid);
        let environment = CudaEnvironment::from_env();
        Probe { host: Host::read(), process_env, environment, owner_of: &mut owner_of }.run(source)
    }
}

/// Inputs of a machine report besides the GPUs: the host, the environment, and a function that looks up the owner of a
/// process. A test gives fixed values instead of those of the machine.
struct Probe<'a> {
    host: Host,
    process_env: ProcessEnv,
    environment: CudaEnvironment,
    owner_of: &'a mut dyn FnMut(u32) -> ProcessOwner,
}

impl Probe<'_> {
    fn run(mut self, source: Result<&dyn GpuSource, NoGpu>) -> Machine {
        let inventory = source.as_ref().map(|source| source.inventory()).unwrap_or_default();
        let visible = self.environment.visible(&inventory.gpus);
        let GpuInventory { driver, cuda, gpus, lost } = inventory;
        let (gpus, no_gpu) = match source {
            Ok(_) if gpus.is_empty() && lost.is_empty() => (Vec::new(), Some(NoGpu::Empty)),
            Ok(source) => (gpus.into_iter().map(|gpu| self.report(gpu, source, &visible)).collect(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let Probe { host, process_env, environment, .. } = self;
        Machine { host, process_env, driver, cuda, environment, visible, gpus, lost, no_gpu }
    }

    fn report(&mut self, gpu: Gpu, source: &dyn GpuSource, visible: &VisibleGpus) -> GpuReport {
        let memory = source.memory(&gpu.uuid);
        let total = memory.as_ref().ok().map(|memory| memory.total);
        let processes = source.processes(&gpu.uuid).map(|processes| {
            let report = |process| ProcessReport::new(process, total, self.process_env, self.owner_of);
            let mut reports: Vec<_> = processes.into_iter().map(report).collect();
            reports.sort_by_key(|process| std::cmp::Reverse(process.memory.map_or(u64::MAX, |bytes| bytes.0)));
            reports
        });
        let why_driver_is_silent = self.process_env.why_driver_is_silent();
        let processes = processes.map_err(|why| if why == Unavailable::Driver { why_driver_is_silent } else { why });
        let instances = gpu.instances.iter().map(|uuid| InstanceReport {
            uuid: uuid.clone(),
            cuda_index: visible.cuda_index(uuid),
            memory: source.memory(uuid),
        });
        GpuReport {
            instances: instances.collect(),
            cuda_index: visible.cuda_index(&gpu.uuid),
            unaccounted: memory.as_ref().ok().map(|&memory| Unaccounted::new(memory, &processes)),
            gpu,
            memory,
            processes,
        }
    }
}

/// Serializes a known fact as its value, and an unknown fact as `{"unseen": "why"}`.
fn fact<T: Serialize, E: Display, S: Serializer>(fact: &Result<T, E>, serializer: S) -> Result<S::Ok, S::Error> {
    match fact {
        Ok(value) => value.serialize(serializer),
        Err(why) => serializer.collect_map([("unseen", why.to_string())]),
    }
}

fn as_text<S: Serializer>(why: &Option<NoGpu>, serializer: S) -> Result<S::Ok, S::Error> {
    why.as_ref().map(NoGpu::to_string).serialize(serializer)
}

fn as_texts<S: Serializer>(errors: &[ProbeError], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(errors.iter().map(ProbeError::to_string))
}
