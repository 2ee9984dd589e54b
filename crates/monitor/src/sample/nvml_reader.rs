//! Reads the GPUs of the NVIDIA driver, each value by itself.

use std::time::Duration;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use plimsoll_core::Bytes;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::gpm::{GpmReader, GpmReadings};
use super::nvml_error::why_missing;
use super::reading::{Missing, Origin, Reading};
use super::watched::WatchedProcess;
use super::{GpuSample, InstanceSample, SampledProcess, ThrottleReason};
use crate::probe::{
    CudaEnvironment, GpuMemory, GpuProcess, GpuSource, NvmlGpus, ProcessEnv, VisibleGpus, device_processes,
};

/// NVML gives the throughput of PCIe in KB a second, where KB means 1024 bytes.
const PCIE_UNIT: f64 = 1024.0;

/// Reader of all GPUs that remembers their names and counters.
pub(super) struct NvmlReader {
    nvml: &'static Nvml,
    visible: VisibleGpus,
    env: ProcessEnv,
    /// Process that counts as the run.
    watched: WatchedProcess,
    processes: System,
    gpus: Vec<KnownGpu>,
}

/// GPU that has answered before, or will answer later.
#[derive(Default)]
struct KnownGpu {
    uuid: String,
    name: String,
    gpm: GpmReader,
}

type Access<'a> = Result<&'a Device<'static>, Missing>;

impl NvmlReader {
    pub(super) fn new(gpus: NvmlGpus) -> Self {
        let visible = CudaEnvironment::from_env().visible(&gpus.inventory().gpus);
        let (nvml, env) = (gpus.library(), ProcessEnv::detect());
        Self { nvml, visible, env, watched: WatchedProcess::this(), processes: System::new(), gpus: Vec::new() }
    }

    pub(super) fn watch(&mut self, process: WatchedProcess) {
        self.watched = process;
    }

    pub(super) fn set_env(&mut self, env: ProcessEnv) {
        self.env = env;
    }

    /// Reads all GPUs. A GPU that was there before and no longer answers stays in the list.
    pub(super) fn read(&mut self, elapsed: Duration) -> Vec<GpuSample> {
        let count = self.nvml.device_count().map_err(|error| why_missing(&error));
        let known = self.gpus.len().max(count.map_or(0, |count| count as usize));
        self.gpus.resize_with(known, KnownGpu::default);
        let mut gpus = std::mem::take(&mut self.gpus);
        let samples = gpus.iter_mut().zip(0..).map(|(gpu, index)| {
            let device = match count {
                Ok(count) if index >= count => Err(Missing::Lost),
                _ => self.nvml.device_by_index(index).map_err(|error| why_missing(&error)),
            };
            self.read_gpu(gpu, index, device.as_ref().map_err(|why| *why), elapsed)
        });
        let samples = samples.collect();
        self.gpus = gpus;
        samples
    }

    fn read_gpu(&mut self, gpu: &mut KnownGpu, index: u32, device: Access<'_>, elapsed: Duration) -> GpuSample {
        gpu.identify(device);
        let mig = value(device, |device| Ok(device.mig_mode()?.current == 1));
        let is_divided = mig.value() == Some(&true);
        let memory = device.and_then(memory);
        let utilization = device.and_then(|device| device.utilization_rates().map_err(|error| why_missing(&error)));
        let gpm = gpu.gpm.read(self.nvml, device, is_divided, elapsed);
        let total = memory.ok().map(|memory| memory.total);
        let bytes = |part: fn(GpuMemory) -> Bytes| Reading::from_result(memory.map(part), Origin::Nvml);
        let share = |part: Result<u32, Missing>| Reading::from_result(part.and_then(share), Origin::Nvml);
        GpuSample {
            index,
            uuid: gpu.uuid.clone(),
            name: gpu.name.clone(),
            cuda_index: self.visible.cuda_index(&gpu.uuid),
            utilization: share(utilization.as_ref().map(|both| both.gpu).map_err(|why| *why)),
            memory_utilization: share(utilization.as_ref().map(|both| both.memory).map_err(|why| *why)),
            memory_total: bytes(|memory| memory.total),
            memory_used: bytes(|memory| memory.used),
            memory_free: bytes(|memory| memory.free),
            power: value(device, |device| Ok(f64::from(device.power_usage()?) / 1e3)),
            power_limit: value(device, |device| Ok(f64::from(power_limit(device)?) / 1e3)),
            temperature: value(device, |device| Ok(f64::from(device.temperature(TemperatureSensor::Gpu)?))),
            sm_clock: value(device, |device| Ok(f64::from(device.clock_info(Clock::SM)?))),
            sm_clock_max: value(device, |device| Ok(f64::from(device.max_clock_info(Clock::SM)?))),
            throttle: value(device, |device| Ok(throttle_reasons(device.current_throttle_reasons()?))),
            pcie_received: pcie(&gpm, |gpm| &gpm.pcie_received, device, PcieUtilCounter::Receive),
            pcie_sent: pcie(&gpm, |gpm| &gpm.pcie_sent, device, PcieUtilCounter::Send),
            ecc_errors: value(device, |device| device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)),
            processes: Reading::from_result(self.read_processes(device, total), Origin::Nvml),
            instances: if is_divided { self.read_instances(device) } else { Vec::new() },
            mig,
            sm_active: gpm.sm_active,
            tensor_active: gpm.tensor_active,
            dram_active: gpm.dram_active,
        }
    }

    fn read_processes(&mut self, device: Access<'_>, total: Option<Bytes>) -> Result<Vec<SampledProcess>, Missing> {
        let processes = device_processes(device?).map_err(|error| why_missing(&error))?;
        if self.env.why_pids_differ().is_none() {
            let pids: Vec<_> = processes.iter().map(|process| Pid::from_u32(process.pid)).collect();
            let kind = ProcessRefreshKind::nothing().without_tasks();
            self.processes.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, kind);
        }
        Ok(processes.into_iter().map(|process| self.sampled(process, total)).collect())
    }

    /// The number of a process says nothing in a container that has its own process numbers: an equal number may mean
    /// another process. A size above the `total` memory is not a size: drivers under WSL give such numbers.
    fn sampled(&self, process: GpuProcess, total: Option<Bytes>) -> SampledProcess {
        let numbers_hold = self.env.why_pids_differ().is_none();
        let is_this = self.watched.pid() == Some(process.pid);
        let name = || Some(self.processes.process(Pid::from_u32(process.pid))?.name().to_string_lossy().into_owned());
        let memory = process.memory.filter(|memory| total.is_none_or(|total| *memory <= total));
        SampledProcess {
            pid: process.pid,
            name: if numbers_hold { name() } else { None },
            memory: Reading::from_result(memory.ok_or(Missing::NotVisible), Origin::Nvml),
            is_own: numbers_hold && is_this,
            is_other: numbers_hold && !is_this,
        }
    }

    /// Reads the instances of a divided GPU. The count is one of slots, and slots may be empty.
    fn read_instances(&self, device: Access<'_>) -> Vec<InstanceSample> {
        let Ok(device) = device else { return Vec::new() };
        let slots = 0..device.mig_device_count().unwrap_or(0);
        let instances = slots.filter_map(|slot| {
            let instance = device.mig_device_by_index(slot).ok()?;
            let (uuid, memory) = (instance.uuid().ok()?, memory(&instance));
            let bytes = |part: fn(GpuMemory) -> Bytes| Reading::from_result(memory.map(part), Origin::Nvml);
            Some(InstanceSample {
                cuda_index: self.visible.cuda_index(&uuid),
                uuid,
                memory_total: bytes(|memory| memory.total),
                memory_used: bytes(|memory| memory.used),
                memory_free: bytes(|memory| memory.free),
            })
        });
        instances.collect()
    }
}

impl KnownGpu {
    /// Updates name and UUID. A GPU that does not answer keeps its own; another GPU at its place begins anew.
    fn identify(&mut self, device: Access<'_>) {
        let Ok(device) = device else { return };
        let Ok(uuid) = device.uuid() else { return };
        if uuid != self.uuid {
            *self = Self { uuid, ..Self::default() };
        }
        if self.name.is_empty() {
            self.name = device.name().unwrap_or_default();
        }
    }
}

fn value<T>(device: Access<'_>, read: impl Fn(&Device<'static>) -> Result<T, NvmlError>) -> Reading<T> {
    let read = |device| read(device).map_err(|error| why_missing(&error));
    Reading::from_result(device.and_then(read), Origin::Nvml)
}

/// Reads the memory. A GPU without memory of its own shares the memory of the host, and reports zero.
fn memory(device: &Device<'_>) -> Result<GpuMemory, Missing> {
    match device.memory_info() {
        Ok(info) if info.total == 0 => Err(Missing::NotSupported),
        Ok(info) => Ok(GpuMemory::new(Bytes(info.total), Bytes(info.reserved), Bytes(info.free))),
        Err(error) => Err(why_missing(&error)),
    }
}

fn share(percent: u32) -> Result<f64, Missing> {
    if percent <= 100 { Ok(f64::from(percent) / 100.0) } else { Err(Missing::Failed) }
}

/// Reads the limit that applies: the lowest of all limits. Older GPUs have only the limit that a user sets.
fn power_limit(device: &Device<'_>) -> Result<u32, NvmlError> {
    device.enforced_power_limit().or_else(|error| device.power_management_limit().map_err(|_| error))
}

/// Prefers the counter that is an average over the whole period: NVML's own looks at 20 ms, and takes as long.
fn pcie(
    gpm: &GpmReadings,
    of_gpm: fn(&GpmReadings) -> &Reading<f64>,
    device: Access<'_>,
    counter: PcieUtilCounter,
) -> Reading<f64> {
    let reading = of_gpm(gpm);
    match reading.why_missing() {
        None | Some(Missing::NeedsTwoReadings) => reading.clone(),
        Some(_) => value(device, |device| Ok(f64::from(device.pcie_throughput(counter)?) * PCIE_UNIT)),
    }
}

/// Lists the reasons for a low clock, without idleness and without clocks that a user has set.
fn throttle_reasons(reasons: ThrottleReasons) -> Vec<ThrottleReason> {
    let names = [
        (ThrottleReasons::SW_POWER_CAP, ThrottleReason::PowerLimit),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, ThrottleReason::Heat),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, ThrottleReason::Heat),
        (ThrottleReasons::HW_SLOWDOWN, ThrottleReason::Hardware),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, ThrottleReason::PowerBrake),
        (ThrottleReasons::SYNC_BOOST, ThrottleReason::Synchronized),
    ];
    let mut found: Vec<_> = names.iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, name)| *name).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_and_chosen_clocks_are_no_throttling() {
        let all = ThrottleReasons::all();
        for bits in 0..1_u64 << 9 {
            let reasons = ThrottleReasons::from_bits_truncate(bits) & all;
            let harmless = ThrottleReasons::GPU_IDLE
                | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING
                | ThrottleReasons::DISPLAY_CLOCK_SETTING;
            let found = throttle_reasons(reasons);
            assert_eq!(found.is_empty(), harmless.contains(reasons), "{reasons:?}: {found:?}");
        }
        let both = ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(throttle_reasons(both), [ThrottleReason::Heat]);
    }

    #[test]
    fn a_share_is_at_most_one() {
        assert_eq!([0, 37, 100].map(share), [Ok(0.0), Ok(0.37), Ok(1.0)]);
        assert_eq!([101, u32::MAX].map(share), [Err(Missing::Failed); 2]);
    }
}
