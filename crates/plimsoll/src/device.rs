//! Which device trains.

use burn::tensor::Device;
use plimsoll_core::{Bytes, MemoryMeter};

use crate::config::{BackendChoice, DeviceConfig};
use crate::failure::Failure;

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
    pub(crate) fn meter(&self, process: &'static dyn MemoryMeter) -> Box<dyn MemoryMeter> {
        match self.is_host {
            true => Box::new(process),
            false => Box::new(PoolMeter { device: self.device.clone() }),
        }
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
    Chosen { device: Device::flex(), name: format!("the CPU, {threads} threads"), is_host: true, lanes: threads }
}

#[cfg(feature = "cuda")]
fn cuda(index: usize) -> Result<Chosen, Failure> {
    Ok(Chosen { device: Device::cuda(index), name: format!("CUDA device {index}"), is_host: false, lanes: 1 })
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
    Ok(Chosen { device, name: format!("graphics device {index}"), is_host: false, lanes: 1 })
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
