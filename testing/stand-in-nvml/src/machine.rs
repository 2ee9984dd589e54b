//! The state of the library: the scenario, and the GPM samples that are allocated.

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Code, DRIVER_NOT_LOADED, Device, GpmSample, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, UNKNOWN};
use crate::scenario::{Gpu, Memory, Scenario};

/// Environment variable with the path of the scenario.
const VARIABLE: &str = "STAND_IN_NVML";

/// The handle of a MIG instance has its slot, counted from 1, above these bits, and the GPU below.
const SLOT_SHIFT: usize = 16;

static MACHINE: Mutex<Machine> = Mutex::new(Machine { scenario: None, samples: Vec::new(), ticks: 0 });

/// State of the library.
pub(crate) struct Machine {
    scenario: Option<Scenario>,
    samples: Vec<Slot>,
    /// Number of GPM samples taken so far, which is the time of a sample.
    ticks: u64,
}

/// Place of a GPM sample.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Free,
    Empty,
    Taken { gpu: usize, tick: u64 },
}

/// Returns the state of the library.
pub(crate) fn machine() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// Reads the scenario.
    pub(crate) fn load(&mut self) -> Result<(), Code> {
        let path: OsString = std::env::var_os(VARIABLE).ok_or(DRIVER_NOT_LOADED)?;
        let text = std::fs::read_to_string(path).map_err(|_| DRIVER_NOT_LOADED)?;
        let scenario = text.parse::<Scenario>().map_err(|error| {
            eprintln!("{VARIABLE}: {error}");
            UNKNOWN
        })?;
        self.scenario = Some(scenario);
        Ok(())
    }

    /// Returns the scenario for `function`, which has no GPU.
    pub(crate) fn scenario(&self, function: &str) -> Result<&Scenario, Code> {
        let scenario = self.scenario.as_ref().ok_or(DRIVER_NOT_LOADED)?;
        scenario.failures.get(function).map_or(Ok(scenario), |code| Err(*code))
    }

    /// Returns the GPU of a handle for `function`. The GPU of a MIG instance is the whole one.
    pub(crate) fn gpu(&self, device: Device, function: &str) -> Result<&Gpu, Code> {
        self.gpu_at(decode(device).0, function)
    }

    fn gpu_at(&self, index: usize, function: &str) -> Result<&Gpu, Code> {
        let gpu = self.scenario(function)?.gpus.get(index).ok_or(INVALID_ARGUMENT)?;
        gpu.failure(function).map_or(Ok(gpu), Err)
    }

    /// Returns a number of a GPU for `function`.
    pub(crate) fn number(&self, device: Device, function: &str, name: &str) -> Result<u64, Code> {
        self.gpu(device, function)?.numbers.get(name).copied().ok_or(NOT_SUPPORTED)
    }

    /// Returns the UUID of a GPU or a MIG instance.
    pub(crate) fn uuid(&self, device: Device, function: &str) -> Result<String, Code> {
        let gpu = self.gpu(device, function)?;
        match decode(device).1 {
            None => Ok(gpu.uuid.clone()),
            Some(slot) => Ok(instance(gpu, slot)?.0.clone()),
        }
    }

    /// Returns the memory of a GPU or a MIG instance.
    pub(crate) fn memory(&self, device: Device, function: &str) -> Result<Memory, Code> {
        let gpu = self.gpu(device, function)?;
        match decode(device).1 {
            None => gpu.memory.ok_or(NOT_SUPPORTED),
            Some(slot) => Ok(instance(gpu, slot)?.1),
        }
    }

    /// Returns the handle of the MIG instance in `slot`.
    pub(crate) fn instance(&self, device: Device, function: &str, slot: usize) -> Result<Device, Code> {
        instance(self.gpu(device, function)?, slot)?;
        Ok(encode(decode(device).0, Some(slot)))
    }

    /// Returns the handle of the GPU with this index.
    pub(crate) fn by_index(&self, index: usize, function: &str) -> Result<Device, Code> {
        self.gpu_at(index, function)?;
        Ok(encode(index, None))
    }

    /// Returns the handle of the GPU or MIG instance with this UUID.
    pub(crate) fn by_uuid(&self, uuid: &str, function: &str) -> Result<Device, Code> {
        for (index, gpu) in self.scenario(function)?.gpus.iter().enumerate() {
            let slot = gpu.instances.iter().position(|found| found.as_ref().is_some_and(|(name, _)| name == uuid));
            if gpu.uuid == uuid || slot.is_some() {
                self.gpu_at(index, function)?;
                return Ok(encode(index, slot));
            }
        }
        Err(NOT_FOUND)
    }

    /// Allocates a GPM sample.
    pub(crate) fn allocate(&mut self) -> GpmSample {
        let place = self.samples.iter().position(|slot| *slot == Slot::Free).unwrap_or_else(|| {
            self.samples.push(Slot::Free);
            self.samples.len() - 1
        });
        self.samples[place] = Slot::Empty;
        std::ptr::without_provenance_mut(place + 1)
    }

    /// Frees a GPM sample, which must be allocated.
    pub(crate) fn free(&mut self, sample: GpmSample) -> Result<(), Code> {
        match self.slot(sample) {
            None | Some(Slot::Free) => Err(INVALID_ARGUMENT),
            Some(slot) => {
                *slot = Slot::Free;
                Ok(())
            }
        }
    }

    /// Takes the counters of a GPU.
    pub(crate) fn take(&mut self, device: Device, sample: GpmSample, function: &str) -> Result<(), Code> {
        if self.gpu(device, function)?.metrics.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        self.ticks += 1;
        let taken = Slot::Taken { gpu: decode(device).0, tick: self.ticks };
        match self.slot(sample) {
            None | Some(Slot::Free) => Err(INVALID_ARGUMENT),
            Some(slot) => {
                *slot = taken;
                Ok(())
            }
        }
    }

    /// Returns the GPU of two samples, of which the first is older.
    pub(crate) fn between(&mut self, before: GpmSample, after: GpmSample, function: &str) -> Result<&Gpu, Code> {
        match [before, after].map(|sample| self.slot(sample).copied()) {
            [Some(Slot::Taken { gpu, tick }), Some(Slot::Taken { gpu: same, tick: later })]
                if gpu == same && tick < later =>
            {
                self.gpu_at(gpu, function)
            }
            _ => Err(INVALID_ARGUMENT),
        }
    }

    fn slot(&mut self, sample: GpmSample) -> Option<&mut Slot> {
        self.samples.get_mut(sample.addr().checked_sub(1)?)
    }
}

fn instance(gpu: &Gpu, slot: usize) -> Result<&(String, Memory), Code> {
    gpu.instances.get(slot).and_then(Option::as_ref).ok_or(NOT_FOUND)
}

fn encode(gpu: usize, slot: Option<usize>) -> Device {
    std::ptr::without_provenance_mut((slot.map_or(0, |slot| slot + 1) << SLOT_SHIFT) + gpu + 1)
}

/// Returns the index of the GPU, and the slot of the instance. An index that no GPU has stands for a null handle.
fn decode(device: Device) -> (usize, Option<usize>) {
    let (gpu, slot) = (device.addr() & ((1 << SLOT_SHIFT) - 1), device.addr() >> SLOT_SHIFT);
    (gpu.wrapping_sub(1), slot.checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_numbers() {
        for gpu in 0..20 {
            for slot in [None, Some(0), Some(6)] {
                assert_eq!(decode(encode(gpu, slot)), (gpu, slot));
            }
        }
        assert_eq!(decode(std::ptr::null_mut()), (usize::MAX, None));
    }
}
