//! Makes the disk of a program slow, full, or unreadable in places. Linux loads this library before all others if
//! `LD_PRELOAD` names it, and its functions stand in front of those of the C library.
//!
//! - `SLOW_DISK_MS`: a sound file is opened that many milliseconds late.
//! - `BAD_DISK`: a file with an order on each line, read again at each call. `0 full /runs/`: process 0 of MPI finds the disk
//!   full when it writes to a file whose path has `/runs/` in it. `2 broken a.wav`: process 2 cannot open a file whose path has
//!   `a.wav` in it.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::thread::sleep;
use std::time::Duration;
use std::{env, fs};

/// Number of the call `openat` of Linux.
#[cfg(target_arch = "x86_64")]
const OPEN_AT: c_long = 257;
#[cfg(not(target_arch = "x86_64"))]
const OPEN_AT: c_long = 56;
/// Number of the call `write` of Linux.
#[cfg(target_arch = "x86_64")]
const WRITE: c_long = 1;
#[cfg(not(target_arch = "x86_64"))]
const WRITE: c_long = 64;
/// Stands for the current folder.
const CURRENT_FOLDER: c_int = -100;
/// The error of a device that cannot be read.
const IO_ERROR: c_int = 5;
/// The error of a full disk.
const NO_SPACE: c_int = 28;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

/// Returns whether there is an order of kind `kind` for this process and the file at `path`.
fn ordered(kind: &str, path: &str) -> bool {
    let Ok(orders) = env::var("BAD_DISK") else { return false };
    if path == orders {
        return false;
    }
    let rank = env::var("OMPI_COMM_WORLD_RANK").unwrap_or_else(|_| "0".into());
    let text = fs::read_to_string(orders).unwrap_or_default();
    text.lines().filter_map(|line| line.split_once(' ')).any(|(process, order)| {
        let found = order.split_once(' ').is_some_and(|(name, part)| name == kind && path.contains(part));
        process == rank && found
    })
}

/// Sets the error of a call that failed.
fn fail(error: c_int) -> c_int {
    // SAFETY: the C library returns the address of a number that belongs to this thread.
    unsafe { *__errno_location() = error };
    -1
}

/// Opens a file, as the function of this name of the C library.
///
/// # Safety
/// `path` is the address of a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let delay = env::var("SLOW_DISK_MS").ok().and_then(|text| text.parse().ok());
    if let (true, Some(milliseconds)) = (bytes.ends_with(b".wav"), delay) {
        sleep(Duration::from_millis(milliseconds));
    }
    if ordered("broken", &String::from_utf8_lossy(bytes)) {
        return fail(IO_ERROR);
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { syscall(OPEN_AT, CURRENT_FOLDER, path, flags, mode) as c_int }
}

/// Writes to a file, as the function of this name of the C library.
///
/// # Safety
/// `bytes` is the address of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(file: c_int, bytes: *const c_void, len: usize) -> isize {
    if env::var_os("BAD_DISK").is_some() {
        let path = fs::read_link(format!("/proc/self/fd/{file}")).unwrap_or_default();
        if ordered("full", &path.to_string_lossy()) {
            return fail(NO_SPACE) as isize;
        }
    }
    // SAFETY: the arguments are those of the caller.
    unsafe { syscall(WRITE, file, bytes, len) as isize }
}
