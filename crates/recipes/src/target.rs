//! Where a run would take place, as far as a memory plan must know it.

use plimsoll_core::{Bytes, Precision};
use plimsoll_memory::{BackendRules, Gpu, Speed, find};
use plimsoll_monitor::{Host, Machine, NvmlGpus};

use crate::config::RunConfig;
use crate::error::{Failure, FailureExt};
use crate::mapping;

/// Where a run would take place.
#[derive(Clone, Debug)]
pub enum Target {
    /// A card, by the catalogue or because it is here, with what may be used of it.
    Card {
        /// What is known of it.
        card: Gpu,
        /// What a process may use of its memory.
        usable: Bytes,
    },
    /// This machine's CPU and memory.
    Host {
        /// What a process may use of its memory.
        memory: Bytes,
        /// Threads that compute.
        threads: usize,
    },
}

impl Target {
    /// Its name for people.
    pub fn name(&self) -> String {
        match self {
            Self::Card { card, .. } => card.name.to_string(),
            Self::Host { threads, .. } => format!("the CPU, {threads} threads"),
        }
    }

    /// What may be used of it under `config`: no more than is there.
    pub fn budget(&self, config: &RunConfig) -> Bytes {
        let all = match self {
            Self::Card { usable, .. } => *usable,
            Self::Host { memory, .. } => *memory,
        };
        mapping::budget(&config.training, all).map_or(all, |budget| budget.min(all))
    }

    /// The fastest numbers that it computes safely.
    pub fn precision(&self) -> Precision {
        match self {
            Self::Card { card, .. } => fastest_precision(Some(card.capability.0)),
            Self::Host { .. } => Precision::Fp32,
        }
    }

    /// The rules by which its backend uses memory.
    pub fn rules(&self) -> BackendRules {
        match self {
            Self::Card { .. } => BackendRules::gpu(),
            Self::Host { .. } => BackendRules::host(),
        }
    }

    /// How fast it computes in `precision`.
    pub fn speed(&self, precision: Precision) -> Speed {
        match self {
            Self::Card { card, .. } => Speed::for_gpu(card, precision),
            Self::Host { threads, .. } => Speed::for_host(*threads),
        }
    }
}

/// The fastest precision of a CUDA GPU whose compute capability has this major number: bf16 from Ampere (8) on, fp16 on Volta
/// and Turing (7), fp32 on older GPUs and where the number is not known.
pub fn fastest_precision(major: Option<u8>) -> Precision {
    match major {
        Some(8..) => Precision::Bf16,
        Some(7) => Precision::Fp16,
        _ => Precision::Fp32,
    }
}

/// The cards of `names`; without any, what is here.
pub fn targets(names: &[String]) -> Result<Vec<Target>, Failure> {
    if names.is_empty() {
        return Ok(vec![here()]);
    }
    let named = |name: &String| {
        if name == "cpu" {
            return Ok(host());
        }
        let card = find(name).invalid()?;
        Ok(Target::Card { usable: card.usable, card })
    };
    names.iter().map(named).collect()
}

/// The first card that this process may use, or the CPU.
pub fn here() -> Target {
    let cards = NvmlGpus::load();
    let machine = Machine::from_source(cards.as_ref().map(|cards| cards as _).map_err(Clone::clone));
    let card = machine.gpus.iter().filter(|card| card.cuda_index.is_some()).min_by_key(|card| card.cuda_index);
    let Some((report, memory)) = card.and_then(|card| Some((card, card.memory.as_ref().ok()?))) else { return host() };
    // A card that the catalogue does not know is as fast as others of its size.
    let known = find(&report.gpu.name).or_else(|_| find(&format!("{} B", memory.total.0)));
    match known {
        Ok(mut card) => {
            card.name = report.gpu.name.clone().into();
            // What others hold now is not ours.
            Target::Card { card, usable: memory.free }
        }
        Err(_) => host(),
    }
}

/// The memory of the device that a run would take here.
pub fn memory_here() -> Bytes {
    match here() {
        Target::Card { card, .. } => card.memory,
        Target::Host { memory, .. } => memory,
    }
}

/// A card of which only the memory is known.
pub fn card_of(memory: Bytes) -> Option<Target> {
    let card = find(&format!("{} B", memory.0)).ok()?;
    Some(Target::Card { usable: memory, card })
}

/// This machine's processors and memory.
pub fn host() -> Target {
    let host = Host::read();
    Target::Host { memory: host.usable(), threads: host.logical_cpus }
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
