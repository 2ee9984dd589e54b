//! Arguments of the driver's C interface.
//!
//! The types below wrap the pointers that a program passes. A caller follows `cuda.h`: a pointer is null or valid for
//! its type and length during the call. Only the exported functions receive them, so their methods are safe by that
//! contract. Handles are numbers, and are never dereferenced.

use std::ffi::{CStr, c_char, c_uint, c_void};

use crate::errors::{Answer, INVALID_VALUE};

/// Handle of a context, a stream, an event, a module, a function or a graph.
pub(crate) type Handle = usize;

/// Address on a GPU.
pub(crate) type Address = u64;

/// Function of the program that a stream calls.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// Place for a result: null, or valid for a write.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes a result. A null place is a mistake of the program.
    pub(crate) fn give(self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not null, so it is valid for a write.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes a result that the program may leave out.
    pub(crate) fn give_if_wanted(self, value: T) {
        if !self.0.is_null() {
            _ = self.give(value);
        }
    }

    /// Writes a result in another type, as an untyped pointer demands.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// Writes several results one after the other. There must be place for all of them.
    pub(crate) fn give_all(self, values: impl IntoIterator<Item = T>) -> Answer {
        values.into_iter().enumerate().try_for_each(|(index, value)| Self(self.0.wrapping_add(index)).give(value))
    }

    /// Returns whether there is no place.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Copy> Out<T> {
    /// Reads what the program has written there.
    pub(crate) fn read(&self) -> Answer<T> {
        In(self.0.cast_const()).read()
    }
}

impl Out<c_char> {
    /// Writes a text and a zero, and cuts the text where the place ends.
    pub(crate) fn give_text(self, length: i32, text: &str) -> Answer {
        let length = usize::try_from(length).map_err(|_| INVALID_VALUE)?.checked_sub(1).ok_or(INVALID_VALUE)?;
        let bytes = text.bytes().take(length).chain([0]);
        self.give_all(bytes.map(|byte| byte as c_char))
    }
}

/// Pointer to a value: null, or valid for a read.
#[repr(transparent)]
pub(crate) struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// Reads the value.
    pub(crate) fn read(&self) -> Answer<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not null, so it is valid for a read. Structures of the program may lie at any alignment.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// Text of the program: null, or ending with a zero.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Copies the text.
    pub(crate) fn read(&self) -> Answer<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not null, so it ends with a zero.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// Image of a module: PTX text that ends with a zero, or a binary.
#[repr(transparent)]
pub(crate) struct Image(*const c_char);

/// First bytes of binaries: an ELF file, a fat binary, and the wrapper of a fat binary.
const BINARIES: [[u8; 4]; 3] = [*b"\x7fELF", *b"\x50\xed\x55\xba", *b"\xb1\x43\x62\x46"];

impl Image {
    /// Copies the text of an image; `None` if it is a binary.
    pub(crate) fn read(self) -> Answer<Option<String>> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        let is = |binary: &[u8; 4]| {
            // SAFETY: it is not null. The bytes before a difference are those of a binary and no zeros, so the image
            // goes on.
            (0..4).all(|index| unsafe { self.0.add(index).read() } as u8 == binary[index])
        };
        if BINARIES.iter().any(is) { Ok(None) } else { Text(self.0).read().map(Some) }
    }
}

/// Memory of the program that is read: valid for the length that comes with it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostSource(pub(crate) usize);

/// Memory of the program that is written: valid for the length that comes with it.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostTarget(pub(crate) usize);

impl HostSource {
    /// Returns the place `bytes` further on.
    pub(crate) fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns `length` bytes, during a call.
    pub(crate) fn bytes<'a>(self, length: usize) -> Answer<&'a [u8]> {
        if self.0 == 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: it is not null, so it is valid for the length of the copy.
        Ok(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(self.0), length) })
    }
}

impl HostTarget {
    /// Returns the place `bytes` further on.
    pub(crate) fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns `length` bytes, during a call. They are set to zero first, as a program may never have set them.
    pub(crate) fn zeros<'a>(self, length: usize) -> Answer<&'a mut [u8]> {
        if self.0 == 0 {
            return Err(INVALID_VALUE);
        }
        let start: *mut u8 = std::ptr::with_exposed_provenance_mut(self.0);
        // SAFETY: it is not null, so it is valid for the length of the copy, and nothing else uses it during the call.
        unsafe {
            start.write_bytes(0, length);
            Ok(std::slice::from_raw_parts_mut(start, length))
        }
    }
}

/// Arguments of a kernel: an array of pointers to them, or null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Arguments(*const *const u8);

impl Arguments {
    /// Copies the arguments, which have these sizes; `None` if the program passes none.
    pub(crate) fn read(self, sizes: &[usize]) -> Option<Vec<Vec<u8>>> {
        let argument = |(index, size): (usize, &usize)| {
            // SAFETY: it is not null, so there is a pointer for each parameter of the kernel, valid for its size.
            unsafe {
                let pointer = self.0.add(index).read();
                (!pointer.is_null()).then(|| std::slice::from_raw_parts(pointer, *size).to_vec())
            }
        };
        if self.0.is_null() { None } else { sizes.iter().enumerate().map(argument).collect() }
    }
}

/// Description of a copy of rows, `CUDA_MEMCPY2D` of `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Copy2d {
    pub(crate) source: CopyEnd,
    pub(crate) target: CopyEnd,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// One end of a copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CopyEnd {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) kind: c_uint,
    pub(crate) host: usize,
    pub(crate) device: Address,
    pub(crate) array: usize,
    pub(crate) pitch: usize,
}

/// Configuration of a launch, `CUlaunchConfig` of `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared: c_uint,
    pub(crate) stream: Handle,
    pub(crate) attributes: usize,
    pub(crate) n_attributes: c_uint,
}
