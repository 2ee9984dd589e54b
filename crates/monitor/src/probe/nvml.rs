//! GPUs that NVIDIA's management library (NVML) reports. The library is loaded at run time.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use nvml_wrapper::cuda_driver_version_major as major;
use nvml_wrapper::cuda_driver_version_minor as minor;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use plimsoll_core::{Bytes, ProbeError};

use super::gpu::{Gpu, GpuInventory, GpuMemory, GpuProcess, GpuSource, NoGpu, Version, WorkKind};
use super::process_env::Unavailable;

/// Path of NVIDIA's management library (NVML) under WSL. Some distributions do not have it on the loader's path.
const WSL_LIBRARY: &str = "/usr/lib/wsl/lib/libnvidia-ml.so.1";

/// Library that [`NvmlGpus::load`] has loaded. Loading it takes longer than reading a GPU.
static LOADED: Mutex<Option<&'static Nvml>> = Mutex::new(None);

/// GPUs that the NVIDIA driver of this machine reports.
///
/// Loading NVIDIA's management library creates no CUDA context, so it takes no GPU memory. The library stays loaded
/// until the program ends, because counters of a GPU are compared with earlier readings.
#[derive(Clone, Copy, Debug)]
pub struct NvmlGpus {
    nvml: &'static Nvml,
}

impl NvmlGpus {
    /// Loads NVIDIA's management library, once for the whole program.
    ///
    /// # Errors
    /// [`NoGpu`] if there is no library, no driver or no GPU. This is normal on many machines.
    pub fn load() -> Result<Self, NoGpu> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let nvml = match *loaded {
            Some(nvml) => nvml,
            None => &*Box::leak(Box::new(init().map_err(no_gpu)?)),
        };
        *loaded = Some(nvml);
        Self::with_gpus(nvml)
    }

    /// Loads the management library at `path`. Each call loads it anew, and it stays loaded.
    ///
    /// # Errors
    /// [`NoGpu`] if there is no library, no driver or no GPU.
    pub fn load_from(path: &Path) -> Result<Self, NoGpu> {
        let nvml = Nvml::builder().lib_path(path.as_os_str()).init().map_err(no_gpu)?;
        Self::with_gpus(Box::leak(Box::new(nvml)))
    }

    fn with_gpus(nvml: &'static Nvml) -> Result<Self, NoGpu> {
        match nvml.device_count() {
            Ok(0) => Err(NoGpu::Empty),
            Ok(_) => Ok(Self { nvml }),
            Err(error) => Err(no_gpu(error)),
        }
    }

    /// Returns the library.
    pub(crate) fn library(self) -> &'static Nvml {
        self.nvml
    }

    fn device(&self, uuid: &str) -> Result<Device<'_>, NvmlError> {
        self.nvml.device_by_uuid(uuid)
    }
}

fn init() -> Result<Nvml, NvmlError> {
    let on_path = Nvml::init();
    match on_path {
        Err(NvmlError::LibloadingError(_)) => Nvml::builder().lib_path(OsStr::new(WSL_LIBRARY)).init().or(on_path),
        _ => on_path,
    }
}

impl GpuSource for NvmlGpus {
    fn inventory(&self) -> GpuInventory {
        let cuda = self.nvml.sys_cuda_driver_version().ok();
        let cuda = cuda.map(|version| Version { major: major(version) as u32, minor: minor(version) as u32 });
        let driver = self.nvml.sys_driver_version().ok();
        let mut inventory = GpuInventory { driver, cuda, ..GpuInventory::default() };
        for index in 0..self.nvml.device_count().unwrap_or(0) {
            match self.nvml.device_by_index(index).and_then(|device| gpu(index, &device)) {
                Ok(gpu) => inventory.gpus.push(gpu),
                Err(error) => inventory.lost.push(probe_error(&format!("GPU {index}"), &error)),
            }
        }
        inventory
    }

    fn memory(&self, uuid: &str) -> Result<GpuMemory, ProbeError> {
        let info =
            self.device(uuid).and_then(|device| device.memory_info()).map_err(|error| probe_error(uuid, &error))?;
        if info.total == 0 {
            let reason = "it shares the machine's memory, which the driver does not report".into();
            return Err(ProbeError { device: uuid.into(), reason });
        }
        Ok(GpuMemory::new(Bytes(info.total), Bytes(info.reserved), Bytes(info.free)))
    }

    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, Unavailable> {
        self.device(uuid).and_then(|device| device_processes(&device)).map_err(unavailable)
    }
}

/// Reads the processes on `device`. A GPU that cannot list graphics processes has none.
pub(crate) fn device_processes(device: &Device<'_>) -> Result<Vec<GpuProcess>, NvmlError> {
    let compute = device.running_compute_processes()?;
    let graphics = match device.running_graphics_processes() {
        Err(NvmlError::NotSupported) => Vec::new(),
        graphics => graphics?,
    };
    Ok(merge(&compute, &graphics))
}

/// Merges the driver's lists of compute and graphics processes to one list with one entry per process and MIG instance.
/// A process that is in both lists has the same amount of memory in both, so the amounts are not added.
fn merge(compute: &[ProcessInfo], graphics: &[ProcessInfo]) -> Vec<GpuProcess> {
    let mut merged = BTreeMap::new();
    let compute = compute.iter().map(|info| (info, WorkKind::Compute));
    for (info, kind) in compute.chain(graphics.iter().map(|info| (info, WorkKind::Graphics))) {
        let memory = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        merged
            .entry((info.pid, info.gpu_instance_id, info.compute_instance_id))
            .and_modify(|seen: &mut GpuProcess| {
                seen.memory = seen.memory.max(memory);
                seen.kind = if seen.kind == kind { kind } else { WorkKind::Both };
            })
            .or_insert(GpuProcess { pid: info.pid, kind, memory });
    }
    merged.into_values().collect()
}

fn gpu(index: u32, device: &Device<'_>) -> Result<Gpu, NvmlError> {
    let capability = device.cuda_compute_capability().ok();
    let mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    let n_instances = if mig { device.mig_device_count().unwrap_or(0) } else { 0 };
    // The count is one of slots, and slots may be empty.
    let instances = (0..n_instances).filter_map(|slot| device.mig_device_by_index(slot).ok()?.uuid().ok()).collect();
    Ok(Gpu {
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

/// Computes the peak memory bandwidth, in bytes per second: twice the clock times the width of the bus, as in NVIDIA's
/// `deviceQuery` sample, because memory transfers data on both edges of the clock. `None` if the driver does not report
/// it.
fn bandwidth(device: &Device<'_>) -> Option<Bytes> {
    let bits = u64::from(device.memory_bus_width().ok()?);
    let megahertz = u64::from(device.max_clock_info(Clock::Memory).ok()?);
    Some(Bytes(2 * megahertz * 1_000_000 * bits / 8)).filter(|&bandwidth| bandwidth > Bytes(0))
}

fn probe_error(device: &str, error: &NvmlError) -> ProbeError {
    ProbeError { device: device.into(), reason: error.to_string() }
}

fn unavailable(error: NvmlError) -> Unavailable {
    match error {
        NvmlError::NoPermission => Unavailable::Permission,
        _ => Unavailable::Driver,
    }
}

fn no_gpu(error: NvmlError) -> NoGpu {
    match error {
        NvmlError::LibloadingError(error) => NoGpu::Library { reason: error.to_string() },
        NvmlError::LibraryNotFound => NoGpu::Library { reason: error.to_string() },
        NvmlError::DriverNotLoaded => NoGpu::Driver,
        NvmlError::NotFound => NoGpu::Empty,
        NvmlError::LibRmVersionMismatch => NoGpu::Updated,
        error => NoGpu::Refused { reason: error.to_string() },
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
        let row = |pid, kind, memory: Option<u64>| GpuProcess { pid, kind, memory: memory.map(Bytes) };
        let expected = [
            row(6, WorkKind::Graphics, Some(5)),
            row(7, WorkKind::Both, Some(100)),
            row(8, WorkKind::Compute, None),
            row(9, WorkKind::Compute, Some(1)),
            row(9, WorkKind::Graphics, Some(2)),
        ];
        assert_eq!(merge(&compute, &graphics), expected);
    }

    /// Passes with and without a GPU; if there is a GPU, its report is checked.
    #[test]
    fn the_driver_answers_or_gives_a_reason() {
        match NvmlGpus::load() {
            Ok(gpus) => {
                let gpu = gpus.inventory().gpus.into_iter().next().expect("a GPU that answers");
                assert!(gpu.uuid.starts_with("GPU-"), "{gpu:?}");
                assert!(gpu.mig || gpus.memory(&gpu.uuid).is_ok(), "{gpu:?}");
                assert!(gpus.memory("GPU-unknown").is_err());
            }
            Err(why) => assert!(why.to_string().contains("NVIDIA driver"), "{why}"),
        }
    }

    #[test]
    fn every_reason_is_a_sentence() {
        let check = |error, expected: &str| assert_eq!(no_gpu(error).to_string(), expected);
        check(NvmlError::DriverNotLoaded, "the NVIDIA driver is installed and not running");
        check(NvmlError::NotFound, "the NVIDIA driver runs and finds no GPU");
        check(NvmlError::LibRmVersionMismatch, "the NVIDIA driver was updated while it ran: restart the machine");
        check(NvmlError::Timeout, "the NVIDIA driver does not answer (the provided timeout was reached)");
    }
}
