//! The device that memory is planned for: a GPU, here or not, or the CPU of this machine.

use plimsoll_core::{Bytes, Precision, counted};
use plimsoll_memory::{BackendRules, Gpu, Speed, find};
use plimsoll_monitor::Host;

use crate::config::RunConfig;
use crate::error::{Failure, FailureExt};
use crate::machine::{self, LocalGpu};
use crate::mapping;

/// A device that memory is planned for.
#[derive(Clone, Debug)]
pub enum Target {
    /// A GPU from the catalog, or the GPU of this machine.
    Gpu {
        /// Memory and speed of the GPU.
        gpu: Gpu,
        /// Memory of the GPU that a process may use: from the catalog, or the free memory of a local GPU.
        usable: Bytes,
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
    /// Returns the first CUDA GPU that this process may use, or the CPU if there is none.
    pub fn local() -> Self {
        match machine::gpu() {
            Some(LocalGpu { gpu, free }) => Self::Gpu { gpu, usable: free },
            None => Self::host(),
        }
    }

    /// Returns the CPU of this machine, with all its logical processors.
    pub fn host() -> Self {
        let host = Host::read();
        Self::Host { memory: host.usable(), threads: host.logical_cpus }
    }

    /// Returns a GPU with `memory` and the speed of GPUs of about this size; `None` if the catalog has no such GPU.
    pub fn gpu_with_memory(memory: Bytes) -> Option<Self> {
        let gpu = find(&format!("{} B", memory.0)).ok()?;
        Some(Self::Gpu { usable: memory, gpu })
    }

    /// Returns the name for people: the name of the GPU, or the CPU with its number of threads.
    pub fn name(&self) -> String {
        match self {
            Self::Gpu { gpu, .. } => gpu.name.to_string(),
            Self::Host { threads, .. } => format!("the CPU, {}", counted(threads, "thread")),
        }
    }

    /// Computes the memory that a run of `config` may use on the target: the limit of the configuration, and never more
    /// than is usable.
    pub fn budget(&self, config: &RunConfig) -> Bytes {
        let all = match self {
            Self::Gpu { usable, .. } => *usable,
            Self::Host { memory, .. } => *memory,
        };
        mapping::budget(&config.training, all).map_or(all, |budget| budget.min(all))
    }

    /// Returns the fastest safe precision: bf16 or fp16 on GPUs that compute it fast, fp32 on the CPU.
    pub fn precision(&self) -> Precision {
        match self {
            Self::Gpu { gpu, .. } => fastest_precision(Some(gpu.capability.0)),
            Self::Host { .. } => Precision::Fp32,
        }
    }

    /// Returns the rules by which Burn's backend for this device allocates memory.
    pub fn rules(&self) -> BackendRules {
        match self {
            Self::Gpu { .. } => BackendRules::gpu(),
            Self::Host { .. } => BackendRules::host(),
        }
    }

    /// Returns the speed of computing in `precision`, by which the planner compares plans.
    pub fn speed(&self, precision: Precision) -> Speed {
        match self {
            Self::Gpu { gpu, .. } => Speed::for_gpu(gpu, precision),
            Self::Host { threads, .. } => Speed::for_host(*threads),
        }
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

/// Makes targets for `names`, each the name of a GPU (`T4`), a memory size (`8GiB`) or `cpu`. Without names: the local
/// device.
///
/// # Errors
/// If a name is neither a known GPU, nor a size, nor `cpu`.
pub fn targets(names: &[String]) -> Result<Vec<Target>, Failure> {
    if names.is_empty() {
        return Ok(vec![Target::local()]);
    }
    let named = |name: &String| {
        if name == "cpu" {
            return Ok(Target::host());
        }
        let gpu = find(name).invalid()?;
        Ok(Target::Gpu { usable: gpu.usable, gpu })
    };
    names.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_has_its_fastest_precision() {
        let found = [Some(6), Some(7), Some(8), Some(9), Some(12), None].map(fastest_precision);
        use Precision::{Bf16, Fp16, Fp32};
        assert_eq!(found, [Fp32, Fp16, Bf16, Bf16, Bf16, Fp32]);
    }
}
