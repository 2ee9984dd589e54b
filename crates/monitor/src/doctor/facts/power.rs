//! Power limits and clocks that a person has set on a GPU.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;

/// Power limit and clock of a GPU, and their defaults. A value that the driver does not report is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuPower {
    /// Index in the order of NVML.
    pub index: u32,
    /// Current limit of the power, in milliwatts.
    pub limit: Option<u32>,
    /// Limit of the power after a restart, in milliwatts.
    pub default_limit: Option<u32>,
    /// Clock of the multiprocessors that applications ask for, in MHz.
    pub clock: Option<u32>,
    /// Clock of the multiprocessors after a restart, in MHz.
    pub default_clock: Option<u32>,
}

/// Reads the power limits of all GPUs; empty without driver.
pub(super) fn read() -> Vec<GpuPower> {
    let Ok(nvml) = Nvml::init() else { return Vec::new() };
    let count = nvml.device_count().unwrap_or(0);
    let read = |index| {
        let device = nvml.device_by_index(index).ok()?;
        Some(GpuPower {
            index,
            limit: device.power_management_limit().ok(),
            default_limit: device.power_management_limit_default().ok(),
            clock: device.applications_clock(Clock::SM).ok(),
            default_clock: device.default_applications_clock(Clock::SM).ok(),
        })
    };
    (0..count).filter_map(read).collect()
}
