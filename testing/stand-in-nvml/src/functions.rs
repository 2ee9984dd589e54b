//! The functions of NVML about the system and its devices.
//!
//! Safety of all of them: the caller follows `nvml.h`. A pointer is null or valid for its type, a length is the size of
//! its buffer, and a text ends with a zero. Handles are numbers, and any number is accepted.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};

use crate::abi::{
    Code, Device, INSUFFICIENT_SIZE, INVALID_ARGUMENT, MemoryV2, NOT_SUPPORTED, PciInfo, ProcessInfo, SUCCESS,
    Utilization, VERSION_MISMATCH,
};
use crate::machine::machine;

/// Version of `nvmlMemory_v2_t`: its size, and 2 in the highest byte.
const MEMORY_VERSION: c_uint = size_of::<MemoryV2>() as c_uint | 2 << 24;

/// Writes an answer, and returns the code.
///
/// # Safety
/// `out` is null or valid for a write.
pub(crate) unsafe fn give<T>(out: *mut T, answer: Result<T, Code>) -> Code {
    match answer {
        Ok(_) if out.is_null() => INVALID_ARGUMENT,
        Ok(value) => {
            // SAFETY: it is not null, and the caller vouches for the rest.
            unsafe { out.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Writes a text with a zero at its end, and returns the code.
///
/// # Safety
/// `out` is null or valid for `length` writes.
unsafe fn give_text(out: *mut c_char, length: c_uint, answer: Result<String, Code>) -> Code {
    match answer {
        Ok(_) if out.is_null() => INVALID_ARGUMENT,
        Ok(text) if text.len() >= length as usize => INSUFFICIENT_SIZE,
        Ok(text) => {
            // SAFETY: it is not null, the text and its zero fit, and the two do not overlap.
            unsafe {
                out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
                out.add(text.len()).write(0);
            }
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Declares functions that write one number of a device.
macro_rules! number_functions {
    ($($function:ident($($selector:ident),*) -> $type:ty: $name:expr;)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $function(device: Device, $($selector: c_uint,)* out: *mut $type) -> Code {
            let answer = machine().number(device, stringify!($function), &$name).map(|value| value as $type);
            // SAFETY: `out` is null or valid, as said above.
            unsafe { give(out, answer) }
        }
    )+};
}

number_functions! {
    nvmlDeviceGetPowerUsage() -> c_uint: "power";
    nvmlDeviceGetEnforcedPowerLimit() -> c_uint: "power-limit";
    nvmlDeviceGetPowerManagementLimit() -> c_uint: "power-limit";
    nvmlDeviceGetCurrentClocksThrottleReasons() -> c_ulonglong: "throttle";
    nvmlDeviceGetTemperature(_sensor) -> c_uint: "temperature";
    nvmlDeviceGetClockInfo(kind) -> c_uint: format!("clock {kind}");
    nvmlDeviceGetMaxClockInfo(kind) -> c_uint: format!("clock-max {kind}");
    nvmlDeviceGetPcieThroughput(counter) -> c_uint: format!("pcie {counter}");
    nvmlDeviceGetTotalEccErrors(kind, _counter) -> c_ulonglong: format!("ecc {kind}");
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Code {
    let mut machine = machine();
    let answer = machine.load().and_then(|()| machine.scenario("nvmlInit_v2").map(|_| ()));
    answer.err().unwrap_or(SUCCESS)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Code {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> Code {
    let answer = machine().scenario("nvmlSystemGetDriverVersion").map(|scenario| scenario.driver.clone());
    // SAFETY: `out` and `length` are a buffer, as said above.
    unsafe { give_text(out, length, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) -> Code {
    let answer = machine().scenario("nvmlSystemGetCudaDriverVersion_v2").map(|scenario| scenario.cuda);
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

/// Reads the scenario again, so that a test can change the machine between two samples.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> Code {
    let mut machine = machine();
    let answer = machine.load().and_then(|()| machine.scenario("nvmlDeviceGetCount_v2"));
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer.map(|scenario| scenario.gpus.len() as c_uint)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Device) -> Code {
    let answer = machine().by_index(index as usize, "nvmlDeviceGetHandleByIndex_v2");
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Device) -> Code {
    if uuid.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and ends with a zero, as said above.
    let uuid = unsafe { CStr::from_ptr(uuid) };
    let answer = machine().by_uuid(&uuid.to_string_lossy(), "nvmlDeviceGetHandleByUUID");
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, out: *mut c_char, length: c_uint) -> Code {
    let answer = machine().uuid(device, "nvmlDeviceGetUUID");
    // SAFETY: `out` and `length` are a buffer, as said above.
    unsafe { give_text(out, length, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Device, out: *mut c_char, length: c_uint) -> Code {
    let answer = machine().gpu(device, "nvmlDeviceGetName").map(|gpu| gpu.name.clone());
    // SAFETY: `out` and `length` are a buffer, as said above.
    unsafe { give_text(out, length, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Device, out: *mut PciInfo) -> Code {
    let bus = device.addr() as c_uint;
    let mut info =
        PciInfo { bus_id_legacy: [0; 16], domain: 0, bus, device: 0, device_id: 0, subsystem_id: 0, bus_id: [0; 32] };
    let text = format!("00000000:{bus:02X}:00.0");
    info.bus_id.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte as c_char);
    let answer = machine().gpu(device, "nvmlDeviceGetPciInfo_v3").map(|_| info);
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: *mut MemoryV2) -> Code {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not null, and the caller has written a version.
    if unsafe { (*out).version } != MEMORY_VERSION {
        return VERSION_MISMATCH;
    }
    let answer = machine().memory(device, "nvmlDeviceGetMemoryInfo_v2").map(|memory| MemoryV2 {
        version: MEMORY_VERSION,
        total: memory.total,
        reserved: memory.reserved,
        free: memory.free,
        used: memory.total.saturating_sub(memory.reserved).saturating_sub(memory.free),
    });
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, out: *mut Utilization) -> Code {
    let machine = machine();
    let number = |name| machine.number(device, "nvmlDeviceGetUtilizationRates", name);
    let answer = number("utilization")
        .and_then(|gpu| Ok(Utilization { gpu: gpu as c_uint, memory: number("memory-utilization")? as c_uint }));
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(device: Device, current: *mut c_uint, pending: *mut c_uint) -> Code {
    let answer = machine().number(device, "nvmlDeviceGetMigMode", "mig").map(|mig| mig as c_uint);
    // SAFETY: both are null or valid, as said above.
    unsafe {
        match give(current, answer) {
            SUCCESS => give(pending, answer),
            code => code,
        }
    }
}

/// Gives the number of slots, of which some may be empty.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Device, out: *mut c_uint) -> Code {
    let answer = machine().gpu(device, "nvmlDeviceGetMaxMigDeviceCount").map(|gpu| gpu.instances.len() as c_uint);
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(device: Device, slot: c_uint, out: *mut Device) -> Code {
    let answer = machine().instance(device, "nvmlDeviceGetMigDeviceHandleByIndex", slot as usize);
    // SAFETY: `out` is null or valid, as said above.
    unsafe { give(out, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    // SAFETY: `count` is null or valid, and `out` has place for that many, as said above.
    unsafe { give_processes(device, "nvmlDeviceGetComputeRunningProcesses_v3", false, count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: Device,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    // SAFETY: `count` is null or valid, and `out` has place for that many, as said above.
    unsafe { give_processes(device, "nvmlDeviceGetGraphicsRunningProcesses_v3", true, count, out) }
}

/// Writes the processes of one kind, or only their number if there is too little place.
///
/// # Safety
/// `count` is null or valid; `out` is valid for `count` writes, and may be null if that is zero.
unsafe fn give_processes(
    device: Device,
    function: &str,
    is_graphics: bool,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Code {
    let machine = machine();
    let gpu = match machine.gpu(device, function) {
        _ if count.is_null() => return INVALID_ARGUMENT,
        Ok(gpu) => gpu,
        Err(code) => return code,
    };
    let processes: Vec<_> = gpu.processes.iter().filter(|process| process.is_graphics == is_graphics).collect();
    // SAFETY: it is not null.
    let place = unsafe { count.replace(processes.len() as c_uint) } as usize;
    if place < processes.len() {
        return INSUFFICIENT_SIZE;
    }
    for (index, process) in processes.iter().enumerate() {
        let info = ProcessInfo {
            pid: process.pid,
            memory: process.memory,
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        };
        // SAFETY: there is place for all of them.
        unsafe { out.add(index).write(info) };
    }
    SUCCESS
}

/// Says that a function exists and the GPU has no such value.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryBusWidth(_device: Device, _out: *mut c_uint) -> Code {
    NOT_SUPPORTED
}
