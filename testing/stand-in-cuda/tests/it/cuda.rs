//! The functions of the driver, found by their names in the library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NOT_INITIALIZED: c_int = 3;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const NOT_FOUND: c_int = 500;

pub(crate) const MIB: usize = 1 << 20;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Flag of `dlopen`: all symbols at once.
const AT_ONCE: c_int = 2;

/// The library.
pub(crate) struct Cuda(*mut c_void);

/// Calls a function of the driver. Each argument has its C type, and the result is the code.
macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let function = $cuda.symbol(stringify!($name));
        assert!(!function.is_null(), concat!("there is no ", stringify!($name)));
        // SAFETY: the test gives the arguments of the function's declaration in `cuda.h`.
        unsafe {
            let function: unsafe extern "C" fn($($type),*) -> std::ffi::c_int = std::mem::transmute(function);
            function($($argument),*)
        }
    }};
}

pub(crate) use call;

/// Two numbers with names, to see in a failure which is which.
pub(crate) type Handle = usize;

impl Cuda {
    /// Opens the library.
    pub(crate) fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero, and the library has no initializers.
        let library = unsafe { dlopen(path.as_ptr(), AT_ONCE) };
        assert!(!library.is_null(), "{path:?} cannot be opened");
        Self(library)
    }

    /// Finds a function; null if there is none.
    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library is open, and the name ends with a zero.
        unsafe { dlsym(self.0, name.as_ptr()) }
    }

    /// Initializes the driver and makes the context of a GPU current. Returns the context.
    pub(crate) fn begin_on(&self, gpu: c_int) -> Handle {
        assert_eq!(call!(self, cuInit(0 => u32)), 0);
        let mut context = 0;
        assert_eq!(call!(self, cuDevicePrimaryCtxRetain(&mut context => &mut Handle, gpu => c_int)), 0);
        assert_eq!(call!(self, cuCtxSetCurrent(context => Handle)), 0);
        context
    }

    pub(crate) fn begin(&self) -> Handle {
        self.begin_on(0)
    }

    pub(crate) fn allocate(&self, size: usize) -> Result<u64, c_int> {
        let mut address = 0;
        let code = call!(self, cuMemAlloc_v2(&mut address => &mut u64, size => usize));
        if code == 0 { Ok(address) } else { Err(code) }
    }

    pub(crate) fn free(&self, address: u64) -> c_int {
        call!(self, cuMemFree_v2(address => u64))
    }

    /// Returns the free memory in bytes.
    pub(crate) fn left(&self) -> usize {
        let (mut left, mut all) = (0, 0);
        assert_eq!(call!(self, cuMemGetInfo_v2(&mut left => &mut usize, &mut all => &mut usize)), 0);
        left
    }

    pub(crate) fn stream(&self) -> Handle {
        let mut stream = 0;
        assert_eq!(call!(self, cuStreamCreate(&mut stream => &mut Handle, 1 => u32)), 0);
        stream
    }

    pub(crate) fn synchronize(&self, stream: Handle) -> c_int {
        call!(self, cuStreamSynchronize(stream => Handle))
    }

    pub(crate) fn load(&self, ptx: &str) -> Result<Handle, c_int> {
        let (text, mut module) = (CString::new(ptx).unwrap(), 0);
        let code = call!(self, cuModuleLoadData(&mut module => &mut Handle, text.as_ptr() => *const c_char));
        if code == 0 { Ok(module) } else { Err(code) }
    }

    pub(crate) fn function(&self, module: Handle, name: &CStr) -> Result<Handle, c_int> {
        let mut function = 0;
        let code = call!(self, cuModuleGetFunction(
            &mut function => &mut Handle, module => Handle, name.as_ptr() => *const c_char
        ));
        if code == 0 { Ok(function) } else { Err(code) }
    }

    /// Launches a kernel with two pointers and a structure as its arguments.
    pub(crate) fn launch(&self, function: Handle, blocks: u32, threads: u32, pointers: [u64; 2], on: Handle) -> c_int {
        let structure = [0_u64; 2];
        let arguments: [*const c_void; 3] =
            [(&raw const pointers[0]).cast(), (&raw const pointers[1]).cast(), (&raw const structure).cast()];
        call!(self, cuLaunchKernel(
            function => Handle, blocks => u32, 1 => u32, 1 => u32, threads => u32, 1 => u32, 1 => u32, 0 => u32,
            on => Handle, arguments.as_ptr() => *const *const c_void, std::ptr::null() => *const c_void
        ))
    }

    pub(crate) fn upload(&self, to: u64, bytes: &[u8], on: Handle) -> c_int {
        call!(self, cuMemcpyHtoDAsync_v2(
            to => u64, bytes.as_ptr() => *const u8, bytes.len() => usize, on => Handle
        ))
    }

    pub(crate) fn read(&self, from: u64, length: usize, on: Handle) -> Result<Vec<u8>, c_int> {
        let mut bytes = vec![7; length];
        let code = call!(self, cuMemcpyDtoHAsync_v2(
            bytes.as_mut_ptr() => *mut u8, from => u64, length => usize, on => Handle
        ));
        if code == 0 { Ok(bytes) } else { Err(code) }
    }
}

/// A module with one kernel, `add`: it reads through its first parameter, writes through its second, and has a structure
/// as its third.
pub(crate) const ADD: &str = "\
.version 7.0
.target sm_70
.address_size 64
.visible .entry add(
    .param .u64 add_param_0,
    .param .u64 add_param_1,
    .param .align 8 .b8 add_param_2[16]
)
.maxntid 256, 1, 1
{
    .reg .b64 %rd<9>;
    .reg .f32 %f<4>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [add_param_0];
    ld.param.u64 %rd2, [add_param_1];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd5, %r1, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd7], %f2;
    ret;
}
";

/// Loads the module, and returns its kernel.
pub(crate) fn add(cuda: &Cuda) -> Handle {
    cuda.function(cuda.load(ADD).unwrap(), c"add").unwrap()
}
