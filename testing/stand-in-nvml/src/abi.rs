//! The types of NVML's C interface, as `nvml.h` declares them.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

pub(crate) const SUCCESS: c_uint = 0;
pub(crate) const INVALID_ARGUMENT: c_uint = 2;
pub(crate) const NOT_SUPPORTED: c_uint = 3;
pub(crate) const NOT_FOUND: c_uint = 6;
pub(crate) const INSUFFICIENT_SIZE: c_uint = 7;
pub(crate) const DRIVER_NOT_LOADED: c_uint = 9;
pub(crate) const VERSION_MISMATCH: c_uint = 25;
pub(crate) const UNKNOWN: c_uint = 999;

/// Return code of every function.
pub(crate) type Code = c_uint;

/// Handle of a GPU or a MIG instance. It is a number and is never dereferenced.
pub(crate) type Device = *mut c_void;

/// Handle of a GPM sample. It is a number and is never dereferenced.
pub(crate) type GpmSample = *mut c_void;

#[repr(C)]
pub(crate) struct MemoryV2 {
    pub(crate) version: c_uint,
    pub(crate) total: c_ulonglong,
    pub(crate) reserved: c_ulonglong,
    pub(crate) free: c_ulonglong,
    pub(crate) used: c_ulonglong,
}

#[repr(C)]
pub(crate) struct Utilization {
    pub(crate) gpu: c_uint,
    pub(crate) memory: c_uint,
}

#[repr(C)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: c_uint,
    pub(crate) memory: c_ulonglong,
    pub(crate) gpu_instance: c_uint,
    pub(crate) compute_instance: c_uint,
}

#[repr(C)]
pub(crate) struct PciInfo {
    pub(crate) bus_id_legacy: [c_char; 16],
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
    pub(crate) device_id: c_uint,
    pub(crate) subsystem_id: c_uint,
    pub(crate) bus_id: [c_char; 32],
}

#[repr(C)]
pub(crate) struct GpmSupport {
    pub(crate) version: c_uint,
    pub(crate) is_supported: c_uint,
}

#[repr(C)]
pub(crate) struct GpmMetric {
    pub(crate) id: c_uint,
    pub(crate) code: Code,
    pub(crate) value: f64,
    pub(crate) names: [*mut c_char; 3],
}

#[repr(C)]
pub(crate) struct GpmMetricsGet {
    pub(crate) version: c_uint,
    pub(crate) count: c_uint,
    pub(crate) before: GpmSample,
    pub(crate) after: GpmSample,
    pub(crate) metrics: [GpmMetric; 210],
}
