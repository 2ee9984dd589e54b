//! The cards as NVIDIA's own library (NVML) tells of them. It is loaded when asked for.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use nvml_wrapper::cuda_driver_version_major as major;
use nvml_wrapper::cuda_driver_version_minor as minor;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use plimsoll_core::{Bytes, ProbeError};

use super::{Card, CardMemory, CardProcess, CardSource, NoCards, Roster, Unseen, Version, WorkKind};

/// Where WSL keeps the library; not every distribution has it on the loader's path.
const WSL_LIBRARY: &str = "/usr/lib/wsl/lib/libnvidia-ml.so.1";

/// The cards that the NVIDIA driver of this machine sees.
///
/// Opening it makes no CUDA context, so it takes no memory of a card.
#[derive(Debug)]
pub struct NvmlCards {
    nvml: Nvml,
}

impl NvmlCards {
    /// Loads the library. That there is none is normal, and the error says in a sentence what is missing.
    pub fn load() -> Result<Self, NoCards> {
        let on_path = Nvml::init();
        let loaded = match on_path {
            Err(NvmlError::LibloadingError(_)) => Nvml::builder().lib_path(OsStr::new(WSL_LIBRARY)).init().or(on_path),
            _ => on_path,
        };
        let nvml = loaded.map_err(why_none)?;
        match nvml.device_count() {
            Ok(0) => Err(NoCards::Empty),
            Ok(_) => Ok(Self { nvml }),
            Err(error) => Err(why_none(error)),
        }
    }

    fn device(&self, uuid: &str) -> Result<Device<'_>, NvmlError> {
        self.nvml.device_by_uuid(uuid)
    }
}

impl CardSource for NvmlCards {
    fn roster(&self) -> Roster {
        let cuda = self.nvml.sys_cuda_driver_version().ok();
        let cuda = cuda.map(|version| Version { major: major(version) as u32, minor: minor(version) as u32 });
        let mut roster = Roster { driver: self.nvml.sys_driver_version().ok(), cuda, ..Roster::default() };
        for index in 0..self.nvml.device_count().unwrap_or(0) {
            match self.nvml.device_by_index(index).and_then(|device| card(index, &device)) {
                Ok(card) => roster.cards.push(card),
                Err(error) => roster.lost.push(unread(&format!("card {index}"), &error)),
            }
        }
        roster
    }

    fn memory(&self, uuid: &str) -> Result<CardMemory, ProbeError> {
        let info = self.device(uuid).and_then(|device| device.memory_info()).map_err(|error| unread(uuid, &error))?;
        if info.total == 0 {
            let reason = "it shares the machine's memory, and the driver does not count that".into();
            return Err(ProbeError { device: uuid.into(), reason });
        }
        Ok(CardMemory::new(Bytes(info.total), Bytes(info.reserved), Bytes(info.free)))
    }

    fn processes(&self, uuid: &str) -> Result<Vec<CardProcess>, Unseen> {
        let device = self.device(uuid).map_err(unseen)?;
        let compute = device.running_compute_processes().map_err(unseen)?;
        let graphics = match device.running_graphics_processes() {
            Ok(graphics) => graphics,
            Err(NvmlError::NotSupported) => Vec::new(),
            Err(error) => return Err(unseen(error)),
        };
        Ok(merge(&compute, &graphics))
    }
}

/// One row for each process, or for each MIG instance that it is on: a process that is in both lists says the same
/// amount twice.
fn merge(compute: &[ProcessInfo], graphics: &[ProcessInfo]) -> Vec<CardProcess> {
    let mut merged = BTreeMap::new();
    let compute = compute.iter().map(|info| (info, WorkKind::Compute));
    for (info, kind) in compute.chain(graphics.iter().map(|info| (info, WorkKind::Graphics))) {
        let memory = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        merged
            .entry((info.pid, info.gpu_instance_id, info.compute_instance_id))
            .and_modify(|seen: &mut CardProcess| {
                seen.memory = seen.memory.max(memory);
                seen.kind = if seen.kind == kind { kind } else { WorkKind::Both };
            })
            .or_insert(CardProcess { pid: info.pid, kind, memory });
    }
    merged.into_values().collect()
}

fn card(index: u32, device: &Device<'_>) -> Result<Card, NvmlError> {
    let capability = device.cuda_compute_capability().ok();
    let mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    let n_instances = if mig { device.mig_device_count().unwrap_or(0) } else { 0 };
    // The count is of places, and places may be empty.
    let instances = (0..n_instances).filter_map(|place| device.mig_device_by_index(place).ok()?.uuid().ok()).collect();
    Ok(Card {
        index,
        uuid: device.uuid()?,
        pci_bus_id: device.pci_info()?.bus_id,
        name: device.name()?,
        compute_capability: capability.map(|c| Version { major: c.major as u32, minor: c.minor as u32 }),
        bandwidth_per_sec: bandwidth(device),
        mig,
        instances,
    })
}

/// Twice the clock times the width of the bus, as NVIDIA's `deviceQuery` sample has it: the memory answers on both
/// edges of its clock.
fn bandwidth(device: &Device<'_>) -> Option<Bytes> {
    let bits = u64::from(device.memory_bus_width().ok()?);
    let megahertz = u64::from(device.max_clock_info(Clock::Memory).ok()?);
    Some(Bytes(2 * megahertz * 1_000_000 * bits / 8)).filter(|&bandwidth| bandwidth > Bytes(0))
}

fn unread(device: &str, error: &NvmlError) -> ProbeError {
    ProbeError { device: device.into(), reason: error.to_string() }
}

fn unseen(error: NvmlError) -> Unseen {
    match error {
        NvmlError::NoPermission => Unseen::Permission,
        _ => Unseen::Driver,
    }
}

fn why_none(error: NvmlError) -> NoCards {
    match error {
        NvmlError::LibloadingError(error) => NoCards::Library { reason: error.to_string() },
        NvmlError::LibraryNotFound => NoCards::Library { reason: error.to_string() },
        NvmlError::DriverNotLoaded => NoCards::Driver,
        NvmlError::NotFound => NoCards::Empty,
        NvmlError::LibRmVersionMismatch => NoCards::Updated,
        error => NoCards::Refused { reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: u32, memory: UsedGpuMemory, instance: Option<u32>) -> ProcessInfo {
        ProcessInfo { pid, used_gpu_memory: memory, gpu_instance_id: instance, compute_instance_id: None }
    }

    #[test]
    fn a_process_in_both_lists_counts_once() {
        use UsedGpuMemory::{Unavailable, Used};
        let compute = [info(7, Used(100), None), info(8, Unavailable, None), info(9, Used(1), Some(1))];
        let graphics = [info(7, Used(100), None), info(6, Used(5), None), info(9, Used(2), Some(2))];
        let row = |pid, kind, memory: Option<u64>| CardProcess { pid, kind, memory: memory.map(Bytes) };
        let expected = [
            row(6, WorkKind::Graphics, Some(5)),
            row(7, WorkKind::Both, Some(100)),
            row(8, WorkKind::Compute, None),
            row(9, WorkKind::Compute, Some(1)),
            row(9, WorkKind::Graphics, Some(2)),
        ];
        assert_eq!(merge(&compute, &graphics), expected);
    }

    /// Passes on a machine with a card too, and there looks at it.
    #[test]
    fn the_real_one_answers_or_says_why_not() {
        match NvmlCards::load() {
            Ok(cards) => {
                let card = cards.roster().cards.into_iter().next().expect("a card that answers");
                assert!(card.uuid.starts_with("GPU-"), "{card:?}");
                assert!(card.mig || cards.memory(&card.uuid).is_ok(), "{card:?}");
                assert!(cards.memory("GPU-nobody").is_err());
            }
            Err(why) => assert!(why.to_string().contains("NVIDIA driver"), "{why}"),
        }
    }

    #[test]
    fn every_refusal_is_a_sentence() {
        let check = |error, expected: &str| assert_eq!(why_none(error).to_string(), expected);
        check(NvmlError::DriverNotLoaded, "the NVIDIA driver is installed and not running");
        check(NvmlError::NotFound, "the NVIDIA driver runs and has no card");
        check(NvmlError::LibRmVersionMismatch, "the NVIDIA driver was updated while it ran: restart the machine");
        check(NvmlError::Timeout, "the NVIDIA driver does not answer (the provided timeout was reached)");
    }
}
