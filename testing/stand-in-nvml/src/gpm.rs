//! The functions of NVML about GPM counters. The safety is that of the other functions.

use std::ffi::c_uint;

use crate::abi::{
    Code, Device, GpmMetricsGet, GpmSample, GpmSupport, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH,
};
use crate::functions::give;
use crate::machine::machine;

/// Version of the structures of this interface.
const VERSION: c_uint = 1;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Device, out: *mut GpmSupport) -> Code {
    let machine = machine();
    let gpu = machine.gpu(device, "nvmlGpmQueryDeviceSupport");
    let answer = gpu.map(|gpu| GpmSupport { version: VERSION, is_supported: c_uint::from(!gpu.metrics.is_empty()) });
    // SAFETY: `out` is null or valid.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut GpmSample) -> Code {
    // SAFETY: `out` is null or valid.
    unsafe { give(out, Ok(machine().allocate())) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleFree(sample: GpmSample) -> Code {
    machine().free(sample).err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpmSampleGet(device: Device, sample: GpmSample) -> Code {
    machine().take(device, sample, "nvmlGpmSampleGet").err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut GpmMetricsGet) -> Code {
    // SAFETY: `request` is null or valid, and nothing else uses it during the call.
    let Some(request) = (unsafe { request.as_mut() }) else { return INVALID_ARGUMENT };
    if request.version != VERSION {
        return VERSION_MISMATCH;
    }
    let mut machine = machine();
    let gpu = match machine.between(request.before, request.after, "nvmlGpmMetricsGet") {
        Ok(gpu) => gpu,
        Err(code) => return code,
    };
    for metric in request.metrics.iter_mut().take(request.count as usize) {
        let value = gpu.metrics.get(&metric.id);
        metric.code = if value.is_some() { SUCCESS } else { NOT_SUPPORTED };
        metric.value = value.copied().unwrap_or_default();
    }
    SUCCESS
}
