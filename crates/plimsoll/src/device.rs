//! Which device trains.

use burn::tensor::Device;
use plimsoll_core::{Bytes, CountingAllocator, MemoryGate, MemoryMeter, OpenGate, Precision, SingleReplica};
#[cfg(any(feature = "cuda", test))]
use plimsoll_monitor::Version;

use crate::config::{BackendChoice, DeviceConfig};
use crate::failure::Failure;
use plimsoll_train::{Cards, Replica, Threads};

/// A device and what it is called.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// The device, without a tape.
    pub(crate) device: Device,
    /// Its name for people.
    pub(crate) name: String,
    /// Whether its memory is the process's own.
    pub(crate) is_host: bool,
    /// Pieces of a step that it computes at the same time.
    pub(crate) lanes: usize,
    /// The fastest numbers that it computes safely.
    pub(crate) precision: Precision,
    /// Which of several it is.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only CUDA's cards are counted on from it"))]
    pub(crate) index: usize,
}

/// The pools of a device that has memory of its own.
///
/// What they reserve grows and stays, so that it is the peak even though it is read after the step.
#[derive(Debug)]
pub(crate) struct PoolMeter {
    device: Device,
}

impl MemoryMeter for PoolMeter {
    fn current(&self) -> Bytes {
        Bytes(self.device.memory_pool_usage().map_or(0, |usage| usage.bytes_in_use))
    }

    fn peak(&self) -> Bytes {
        Bytes(self.device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved))
    }

    fn reset_peak(&self) {}
}

impl Chosen {
    /// Whoever counts the memory of this device: `process` where it is the process's own.
    pub(crate) fn meter(&self, process: &'static CountingAllocator) -> Box<dyn MemoryMeter> {
        match self.is_host {
            true => Box::new(process),
            false => Box::new(PoolMeter { device: self.device.clone() }),
        }
    }

    /// So many replicas: the cards from this one on, or threads that share the CPU; each with its way to the others.
    pub(crate) fn ways(&self, replicas: usize) -> Vec<(Device, Box<dyn Replica>)> {
        if replicas <= 1 {
            return vec![(self.device.clone().autodiff(), Box::new(SingleReplica) as Box<dyn Replica>)];
        }
        if self.is_host {
            let threads = Threads::of(replicas).into_iter();
            return threads.map(|way| (self.device.clone().autodiff(), Box::new(way) as Box<dyn Replica>)).collect();
        }
        let devices: Vec<Device> = (0..replicas).map(|rank| self.sibling(rank)).collect();
        let cards = Cards::of(&devices).into_iter().map(|way| Box::new(way) as Box<dyn Replica>);
        devices.iter().map(|device| device.clone().autodiff()).zip(cards).collect()
    }

    /// The device that is so many after this one.
    #[cfg(feature = "cuda")]
    fn sibling(&self, rank: usize) -> Device {
        Device::cuda(self.index + rank)
    }

    #[cfg(not(feature = "cuda"))]
    fn sibling(&self, _: usize) -> Device {
        self.device.clone()
    }

    /// Whoever says whether memory held under `budget`: `process` where memory is the process's own, and nobody but the
    /// device where it has its own.
    pub(crate) fn gate(&self, process: &'static CountingAllocator, budget: Option<Bytes>) -> Box<dyn MemoryGate> {
        if !self.is_host {
            return Box::new(OpenGate);
        }
        process.set_budget(budget);
        Box::new(process)
    }
}

/// The device that `config` asks for; `auto` is the fastest one that this program was built for.
pub(crate) fn choose(config: &DeviceConfig) -> Result<Chosen, Failure> {
    let index = config.index as usize;
    match config.backend {
        BackendChoice::Auto if cfg!(feature = "cuda") => cuda(index),
        BackendChoice::Auto | BackendChoice::Cpu => Ok(cpu()),
        BackendChoice::Cuda => cuda(index),
        BackendChoice::Wgpu => wgpu(index),
    }
}

fn cpu() -> Chosen {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Chosen {
        device: Device::flex(),
        name: format!("the CPU, {threads} threads"),
        is_host: true,
        lanes: threads,
        precision: Precision::Fp32,
        index: 0,
    }
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<Chosen, Failure> {
    let precision = precision_of_card(index);
    Ok(Chosen {
        device: Device::cuda(index),
        name: format!("CUDA device {index}"),
        is_host: false,
        lanes: 1,
        precision,
        index,
    })
}

/// What a CUDA card computes fastest: bf16 from Ampere on, fp16 on Volta and Turing, fp32 where nobody knows.
#[cfg(feature = "cuda")]
fn precision_of_card(index: usize) -> Precision {
    let machine = plimsoll_monitor::Machine::probe();
    let uuid = machine.visible.uuids.get(index);
    let found = machine.cards.iter().map(|report| &report.card).find(|card| Some(&card.uuid) == uuid);
    fastest(found.and_then(|card| card.compute_capability))
}

/// The numbers that products are fastest in, on a card of this compute capability.
#[cfg(any(feature = "cuda", test))]
fn fastest(capability: Option<Version>) -> Precision {
    match capability.map(|version| version.major) {
        Some(8..) => Precision::Bf16,
        Some(7) => Precision::Fp16,
        _ => Precision::Fp32,
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<Chosen, Failure> {
    Err(not_built("cuda"))
}

#[cfg(feature = "wgpu")]
fn wgpu(index: usize) -> Result<Chosen, Failure> {
    use burn::tensor::DeviceKind;
    // The first is whatever there is, which may be a driver that computes on the CPU.
    let kind = if index == 0 { DeviceKind::DefaultDevice } else { DeviceKind::DiscreteGpu(index) };
    let device = Device::wgpu(kind);
    let name = format!("graphics device {index}");
    Ok(Chosen { device, name, is_host: false, lanes: 1, precision: Precision::Fp32, index })
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: usize) -> Result<Chosen, Failure> {
    Err(not_built("wgpu"))
}

#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn not_built(backend: &str) -> Failure {
    Failure::wrong(
        format!("this program was built without {backend}"),
        format!("`cargo xtask train --backend {backend}` builds it in, or use `--backend cpu`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_computes_in_what_it_is_fast_at() {
        let of = |major, minor| fastest(Some(Version { major, minor }));
        let found = [of(6, 1), of(7, 0), of(7, 5), of(8, 0), of(9, 0), of(12, 0), fastest(None)];
        use Precision::{Bf16, Fp16, Fp32};
        assert_eq!(found, [Fp32, Fp16, Fp16, Bf16, Bf16, Bf16, Fp32]);
    }
}
