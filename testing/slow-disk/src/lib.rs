//! Makes a program open sound files slowly. Linux loads this library before all others if `LD_PRELOAD` names it, and its
//! function stands in front of that of the C library.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_long};
use std::thread::sleep;
use std::time::Duration;

/// Number of the call `openat` of Linux.
#[cfg(target_arch = "x86_64")]
const OPEN_AT: c_long = 257;
#[cfg(not(target_arch = "x86_64"))]
const OPEN_AT: c_long = 56;
/// Stands for the current folder.
const CURRENT_FOLDER: c_int = -100;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Opens a file, as the function of this name of the C library. For a sound file it waits first for as many milliseconds as
/// the variable `SLOW_DISK_MS` says.
///
/// # Safety
/// `path` is the address of a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let delay = std::env::var("SLOW_DISK_MS").ok().and_then(|text| text.parse().ok());
    if let (true, Some(milliseconds)) = (bytes.ends_with(b".wav"), delay) {
        sleep(Duration::from_millis(milliseconds));
    }
    unsafe { syscall(OPEN_AT, CURRENT_FOLDER, path, flags, mode) as c_int }
}
