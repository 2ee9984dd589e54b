//! The device that memory is planned for: a GPU, here or not, or the CPU of this machine.

use plimsoll_config::choices::BackendChoice;
use plimsoll_config::{DeviceConfig, RunConfig};
use plimsoll_core::{Bytes, Precision, counted};
use plimsoll_memory::{BackendRules, Gpu, MemoryLimit, find};
use plimsoll_monitor::Host;

use crate::error::{Failure, FailureExt};
use crate::machine::{self, LocalGpu};
use crate::mapping::{self, DeviceTraits};

/// A device that memory is planned for.
#[derive(Clone, Debug)]
pub enum Target {
    /// A GPU from the catalog, or the GPU of this machine.
    Gpu {
        /// Memory and speed of the GPU.
        gpu: Gpu,
        /// Memory of the GPU that CUDA processes can share. A limit that is a share of the memory is a share of this.
        total: Bytes,
        /// Memory of the GPU that a process may use: `total` of a GPU from the catalog, the free memory of a local GPU.
        usable: Bytes,
        /// Fastest safe precision with the backend of the run.
        precision: Precision,
        /// Rules by which the backend of the run allocates memory.
        rules: BackendRules,
    },
    /// The CPU of this machine.
    Host {
        /// Memory of the host that a process may use.
        memory: Bytes,
        /// Number of threads that compute.
        threads: usize,
    },
}

impl Target {
    /// Returns the device of this machine that `device` selects: a GPU that this process may use, or the CPU if there is
    /// none.
    pub fn local(device: &DeviceConfig) -> Self {
        if device.backend == BackendChoice::Cpu {
            return Self::host();
        }
        Self::local_gpu(device.index as usize).map_or_else(Self::host, |gpu| gpu.with_backend(device.backend))
    }

    /// Returns the target as the backend that a configuration selects uses it: CUDA, unless it selects WebGPU.
    fn with_backend(self, backend: BackendChoice) -> Self {
        match (self, backend) {
            (Self::Gpu { gpu, total, usable, .. }, BackendChoice::Wgpu) => {
                Self::Gpu { gpu, total, usable, precision: Precision::Fp32, rules: BackendRules::wgpu() }
            }
            (target, _) => target,
        }
    }

    /// Returns the GPU of this machine that is number `index` in CUDA; `None` if there is none.
    pub fn local_gpu(index: usize) -> Option<Self> {
        machine::gpu(index).map(Self::from)
    }

    /// Returns the CPU of this machine, with all its logical processors.
    pub fn host() -> Self {
        let host = Host::read();
        Self::Host { memory: host.usable(), threads: host.logical_cpus }
    }

    /// Returns a GPU of WebGPU with `memory`, with the speed of GPUs of about this size; `None` if the catalog has no such
    /// GPU.
    pub fn webgpu_with_memory(memory: Bytes) -> Option<Self> {
        let gpu = find(&format!("{} B", memory.0)).ok()?;
        let rules = BackendRules::wgpu();
        Some(Self::Gpu { total: memory, usable: memory, gpu, precision: Precision::Fp32, rules })
    }

    /// Returns the name of the target, for messages: the name of the GPU, or the CPU with its number of threads.
    pub fn name(&self) -> String {
        match self {
            Self::Gpu { gpu, .. } => gpu.name.to_string(),
            Self::Host { threads, .. } => format!("the CPU, {}", counted(threads, "thread")),
        }
    }

    /// Computes the memory that a run of `config` may use on the target: the limit of the configuration, but never more
    /// than other processes leave.
    pub fn budget(&self, config: &RunConfig) -> Bytes {
        let (total, usable) = match self {
            Self::Gpu { total, usable, .. } => (*total, *usable),
            Self::Host { memory, .. } => (*memory, *memory),
        };
        mapping::budget(&config.training, total).map_or(usable, |budget| budget.min(usable))
    }

    /// Returns the limit of a run that may use `budget` on the target.
    pub fn limit(&self, budget: Bytes) -> MemoryLimit {
        match self {
            Self::Gpu { total, rules, .. } if *rules == BackendRules::cuda() => MemoryLimit::on_cuda(budget, *total),
            Self::Gpu { .. } | Self::Host { .. } => budget.into(),
        }
    }

    /// Returns the fastest safe precision: bf16 or fp16 on GPUs that compute it fast, fp32 on the CPU.
    pub fn precision(&self) -> Precision {
        match self {
            Self::Gpu { precision, .. } => *precision,
            Self::Host { .. } => Precision::Fp32,
        }
    }

    /// Returns the rules by which Burn's backend for this device allocates memory.
    pub fn rules(&self) -> BackendRules {
        match self {
            Self::Gpu { rules, .. } => *rules,
            Self::Host { .. } => BackendRules::host(),
        }
    }

    /// Returns the properties that decide which settings a plan may choose from.
    pub fn traits(&self) -> DeviceTraits {
        let precision = self.precision();
        DeviceTraits {
            precision,
            low_precision: Some(precision).filter(|precision| *precision != Precision::Fp32),
            has_own_memory: matches!(self, Self::Gpu { .. }),
        }
    }
}

impl From<Gpu> for Target {
    fn from(gpu: Gpu) -> Self {
        let precision = fastest_precision(Some(gpu.capability.0));
        Self::Gpu { total: gpu.usable, usable: gpu.usable, precision, gpu, rules: BackendRules::cuda() }
    }
}

impl From<LocalGpu> for Target {
    fn from(LocalGpu { gpu, free, total }: LocalGpu) -> Self {
        let precision = fastest_precision(Some(gpu.capability.0));
        Self::Gpu { gpu, total, usable: free.min(total), precision, rules: BackendRules::cuda() }
    }
}

/// Returns the fastest precision of a CUDA GPU whose compute capability has this major number: bf16 from Ampere (8) on,
/// fp16 on Volta and Turing (7), fp32 on older GPUs and if the number is not known.
pub(crate) fn fastest_precision(major: Option<u8>) -> Precision {
    match major {
        Some(8..) => Precision::Bf16,
        Some(7) => Precision::Fp16,
        _ => Precision::Fp32,
    }
}

/// Makes targets for `names`, each the name of a GPU (`T4`), a memory size (`8GiB`) or `cpu`. Without names: the device of
/// this machine that `device` selects. The backend of `device` decides how the memory of a GPU is used.
///
/// # Errors
/// If a name is neither a known GPU, nor a size, nor `cpu`.
pub fn targets(names: &[String], device: &DeviceConfig) -> Result<Vec<Target>, Failure> {
    if names.is_empty() {
        return Ok(vec![Target::local(device)]);
    }
    let named = |name: &String| {
        if name == "cpu" {
            return Ok(Target::host());
        }
        Ok(Target::from(find(name).invalid()?).with_backend(device.backend))
    };
    names.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_leave_what_other_processes_hold() {
        let gpu = find("T4").unwrap();
        let with = |share: Option<f64>, limit: Option<Bytes>, free: u64| {
            let mut config = RunConfig::default();
            (config.training.max_memory_fraction, config.training.max_memory) = (share, limit);
            let total = Bytes::gib(16);
            Target::from(LocalGpu { gpu: gpu.clone(), free: Bytes::gib(free), total }).budget(&config)
        };
        assert_eq!(with(None, None, 2), Bytes::gib(2));
        assert_eq!(with(Some(0.85), None, 2), Bytes::gib(2));
        assert_eq!(with(Some(0.5), None, 15), Bytes::gib(8));
        assert_eq!(with(None, Some(Bytes::gib(9)), 12), Bytes::gib(9));
        assert_eq!(with(None, Some(Bytes::gib(13)), 12), Bytes::gib(12));
    }

    #[test]
    fn the_backend_decides_how_memory_is_used() {
        let device = |backend| DeviceConfig { backend, ..DeviceConfig::default() };
        let rules = |name: &str, backend| targets(&[name.to_string()], &device(backend)).unwrap()[0].rules();
        assert_eq!(rules("3060", BackendChoice::Auto), BackendRules::cuda());
        assert_eq!(rules("8GiB", BackendChoice::Cuda), BackendRules::cuda());
        assert_eq!(rules("3060", BackendChoice::Wgpu), BackendRules::wgpu());
        assert_eq!(rules("cpu", BackendChoice::Wgpu), BackendRules::host());
        let local = targets(&[], &device(BackendChoice::Cpu)).unwrap();
        assert!(matches!(local[..], [Target::Host { .. }]));
    }

    #[test]
    fn each_generation_has_its_fastest_precision() {
        let found = [Some(6), Some(7), Some(8), Some(9), Some(12), None].map(fastest_precision);
        use Precision::{Bf16, Fp16, Fp32};
        assert_eq!(found, [Fp32, Fp16, Bf16, Bf16, Bf16, Fp32]);
    }
}
