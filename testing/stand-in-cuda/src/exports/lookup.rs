//! Functions of the driver by their names.

use std::ffi::{CString, c_char, c_int, c_void};

use super::call;
use crate::abi::{Out, Text};
use crate::errors::{Code, NOT_FOUND};

/// Name of the function.
pub(super) const NAME: &str = "cuGetProcAddress_v2";

unsafe extern "C" {
    /// Finds a symbol in the libraries of the process; a null handle stands for all of them.
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    /// Opens a library again.
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    /// Finds the library of an address.
    fn dladdr(address: *const c_void, out: *mut LibraryOfAddress) -> c_int;
}

/// Library of an address, `Dl_info` of `dlfcn.h`.
#[repr(C)]
struct LibraryOfAddress {
    path: *const c_char,
    base: *mut c_void,
    symbol: *const c_char,
    address: *mut c_void,
}

/// Flag of `dlopen`: all symbols at once.
const AT_ONCE: c_int = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: Text,
    out: Out<*mut c_void>,
    _version: c_int,
    _flags: u64,
    state: Out<c_int>,
) -> Code {
    call(NAME, |_| {
        let name = name.read()?;
        // The newest version of a function is the one that a program means.
        let found = ["_v3", "_v2", ""].iter().map(|version| symbol(&format!("{name}{version}")));
        let found = found.into_iter().find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut());
        state.give_if_wanted(c_int::from(found.is_null()));
        out.give(found)?;
        if found.is_null() { Err(NOT_FOUND) } else { Ok(()) }
    })
}

/// Finds a symbol in this library, wherever it was loaded from; null if it has none of this name.
fn symbol(name: &str) -> *mut c_void {
    let Ok(name) = CString::new(name) else { return std::ptr::null_mut() };
    let here: *const c_void = (symbol as fn(&str) -> *mut c_void) as *const c_void;
    let mut library = LibraryOfAddress {
        path: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    // SAFETY: the place for the answer is valid, the path is one of the loader's, and the name ends with a zero.
    unsafe {
        if dladdr(here, &mut library) == 0 {
            return std::ptr::null_mut();
        }
        let handle = dlopen(library.path, AT_ONCE);
        if handle.is_null() { handle } else { dlsym(handle, name.as_ptr()) }
    }
}
