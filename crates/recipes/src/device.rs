//! Which device trains.

use burn::tensor::Device;
use plimsoll_core::{Bytes, CountingAllocator, MemoryGate, MemoryMeter, OpenGate, Precision, SingleReplica};

use crate::config::{BackendChoice, DeviceConfig};
use crate::error::Failure;
use plimsoll_train::{GpuReplica, Replica, ThreadReplica};

/// A device and what it is called.
#[derive(Clone, Debug)]
pub struct TrainingDevice {
    /// The device, without a tape.
    pub device: Device,
    /// Its name for people.
    pub name: String,
    /// Whether its memory is the process's own.
    pub is_host: bool,
    /// Pieces of a step that it computes at the same time.
    pub lanes: usize,
    /// The fastest numbers that it computes safely.
    pub precision: Precision,
    /// Which of several it is.
    pub index: usize,
}

/// The pools of a device that has memory of its own.
///
/// What they reserve grows and stays, so that it is the peak even though it is read after the step.
#[derive(Debug)]
pub struct PoolMeter {
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

impl TrainingDevice {
    /// The device that `config` asks for; `auto` is the fastest one that this program was built for.
    ///
    /// # Errors
    /// Where the program was built without the backend that `config` names.
    pub fn choose(config: &DeviceConfig) -> Result<Self, Failure> {
        let index = config.index as usize;
        match config.backend {
            BackendChoice::Auto if cfg!(feature = "cuda") => cuda(index),
            BackendChoice::Auto | BackendChoice::Cpu => Ok(cpu()),
            BackendChoice::Cuda => cuda(index),
            BackendChoice::Wgpu => wgpu(index),
        }
    }

    /// Whoever counts the memory of this device: `process` where it is the process's own.
    pub fn meter(&self, process: &'static CountingAllocator) -> Box<dyn MemoryMeter> {
        match self.is_host {
            true => Box::new(process),
            false => Box::new(PoolMeter { device: self.device.clone() }),
        }
    }

    /// So many replicas: the cards from this one on, or threads that share the CPU; each with its way to the others.
    pub fn ways(&self, replicas: usize) -> Vec<(Device, Box<dyn Replica>)> {
        if replicas <= 1 {
            return vec![(self.device.clone().autodiff(), Box::new(SingleReplica) as Box<dyn Replica>)];
        }
        if self.is_host {
            let threads = ThreadReplica::for_ranks(replicas).into_iter();
            return threads.map(|way| (self.device.clone().autodiff(), Box::new(way) as Box<dyn Replica>)).collect();
        }
        let devices: Vec<Device> = (0..replicas).map(|rank| self.sibling(rank)).collect();
        let cards = GpuReplica::for_devices(&devices).into_iter().map(|way| Box::new(way) as Box<dyn Replica>);
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
    pub fn gate(&self, process: &'static CountingAllocator, budget: Option<Bytes>) -> Box<dyn MemoryGate> {
        if !self.is_host {
            return Box::new(OpenGate);
        }
        process.set_budget(budget);
        Box::new(process)
    }
}

fn cpu() -> TrainingDevice {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    TrainingDevice {
        device: Device::flex(),
        name: format!("the CPU, {threads} threads"),
        is_host: true,
        lanes: threads,
        precision: Precision::Fp32,
        index: 0,
    }
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<TrainingDevice, Failure> {
    let precision = precision_of_gpu(index);
    Ok(TrainingDevice {
        device: Device::cuda(index),
        name: format!("CUDA device {index}"),
        is_host: false,
        lanes: 1,
        precision,
        index,
    })
}

/// The fastest safe precision of the CUDA device `index`.
#[cfg(feature = "cuda")]
fn precision_of_gpu(index: usize) -> Precision {
    let machine = plimsoll_monitor::Machine::probe();
    let uuid = machine.visible.uuids.get(index);
    let found = machine.gpus.iter().map(|report| &report.gpu).find(|gpu| Some(&gpu.uuid) == uuid);
    crate::target::fastest_precision(found.and_then(|card| card.compute_capability).map(|version| version.major as u8))
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<TrainingDevice, Failure> {
    Err(not_built("cuda"))
}

#[cfg(feature = "wgpu")]
fn wgpu(index: usize) -> Result<TrainingDevice, Failure> {
    use burn::tensor::DeviceKind;
    // The first is whatever there is, which may be a driver that computes on the CPU.
    let kind = if index == 0 { DeviceKind::DefaultDevice } else { DeviceKind::DiscreteGpu(index) };
    let device = Device::wgpu(kind);
    let name = format!("graphics device {index}");
    Ok(TrainingDevice { device, name, is_host: false, lanes: 1, precision: Precision::Fp32, index })
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: usize) -> Result<TrainingDevice, Failure> {
    Err(not_built("wgpu"))
}

#[cfg(not(all(feature = "cuda", feature = "wgpu")))]
fn not_built(backend: &str) -> Failure {
    Failure::invalid(
        format!("this program was built without {backend}"),
        format!("`cargo xtask train --backend {backend}` builds it in, or use `--backend cpu`"),
    )
}
