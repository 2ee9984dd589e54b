//! Modules, launches and made-up time.

use std::ffi::c_int;

use crate::cuda::{ADD, Cuda, Handle, INVALID_HANDLE, INVALID_VALUE, MIB, NOT_FOUND, add, call};
use crate::process::{on, one_gpu};

const INVALID_PTX: c_int = 218;
const NO_BINARY_FOR_GPU: c_int = 209;
const UNSUPPORTED_PTX_VERSION: c_int = 222;
const LAUNCH_OUT_OF_RESOURCES: c_int = 701;

#[test]
fn kernels_are_found_and_launched() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (stream, address) = (cuda.stream(), cuda.allocate(MIB).unwrap());
        let module = cuda.load(ADD).unwrap();
        let function = cuda.function(module, c"add").unwrap();
        assert_eq!(cuda.function(module, c"sub"), Err(NOT_FOUND));
        let launch = |blocks, threads| cuda.launch(function, blocks, threads, [address, address], stream);
        assert_eq!([launch(10, 256), launch(1, 1)], [0, 0]);
        assert_eq!([launch(10, 257), launch(10, 512)], [LAUNCH_OUT_OF_RESOURCES; 2]);
        assert_eq!([launch(0, 1), launch(1, 0), launch(1, 1025)], [INVALID_VALUE; 3]);
        assert_eq!(cuda.launch(function + 16, 1, 1, [0, 0], stream), INVALID_HANDLE);
        assert_eq!(cuda.launch(function, 1, 1, [0, 0], stream + 16), INVALID_HANDLE);
        assert_eq!(call!(cuda, cuModuleUnload(module => Handle)), 0);
        assert_eq!(launch(1, 1), INVALID_HANDLE);
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("launches"), remains.number("dispatches"), remains.number("wild")), (2, 2, 0));
    let add = &remains.books["kernels"]["add"];
    let number = |name: &str| add[name].as_u64();
    assert_eq!(["launches", "replayed", "variants"].map(number), [Some(2), Some(0), Some(1)]);
    assert_eq!(["registers", "stack", "spills", "shared", "spilling"].map(number), [Some(0); 5]);
    assert_eq!(remains.books["calls"]["cuLaunchKernel"], 10);
}

#[test]
fn modules_that_the_gpu_cannot_run_are_refused() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        let load = |from: &str, to: &str| cuda.load(&ADD.replace(from, to));
        assert_eq!(load("sm_70", "sm_90"), Err(NO_BINARY_FOR_GPU));
        assert_eq!(load("sm_70", "sm_80a"), Err(NO_BINARY_FOR_GPU));
        assert_eq!(load("7.0", "9.3"), Err(UNSUPPORTED_PTX_VERSION));
        assert_eq!(cuda.load("some text"), Err(INVALID_PTX));
        assert!(load("sm_70", "sm_86a").is_ok());
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("modules"), remains.number("refused_modules")), (1, 4));
    assert!(remains.stderr.contains("it is for sm_90"), "{}", remains.stderr);
}

#[test]
fn shared_memory_has_its_limits() {
    on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (stream, function) = (cuda.stream(), add(cuda));
        let opt_in = |size: i32| call!(cuda, cuFuncSetAttribute(function => Handle, 8 => i32, size => i32));
        let arguments = [0_u64; 2];
        let pointers = [&raw const arguments[0]; 3];
        let launch = |shared: u32| {
            call!(cuda, cuLaunchKernel(
                function => Handle, 1 => u32, 1 => u32, 1 => u32, 32 => u32, 1 => u32, 1 => u32, shared => u32,
                stream => Handle, pointers.as_ptr() => *const *const u64, 0 => usize
            ))
        };
        assert_eq!([launch(48 << 10), launch((48 << 10) + 1)], [0, INVALID_VALUE]);
        assert_eq!([opt_in(99 << 10), opt_in((99 << 10) + 1), opt_in(-1)], [0, INVALID_VALUE, INVALID_VALUE]);
        assert_eq!([launch(99 << 10), launch(100 << 10)], [0, INVALID_VALUE]);
    });
}

#[test]
fn pointers_into_freed_memory_are_wild() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (stream, function) = (cuda.stream(), add(cuda));
        let (live, freed) = (cuda.allocate(5 * MIB).unwrap(), cuda.allocate(5 * MIB).unwrap());
        cuda.free(freed);
        for pointers in [[live, live + 4 * MIB as u64], [live, freed], [freed + 5, live], [12345, 0]] {
            assert_eq!(cuda.launch(function, 1, 1, pointers, stream), 0);
        }
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("launches"), remains.number("wild")), (4, 2));
    assert!(remains.stderr.contains("parameter 1 of add"), "{}", remains.stderr);
}

#[test]
fn slow_kernels_take_long() {
    on(&format!("slow sub,ad\n{}", one_gpu("")), |cuda| assert!(time(cuda) > 4.0));
}

#[test]
fn kernels_take_a_few_microseconds() {
    on(&one_gpu(""), |cuda| {
        let time = time(cuda);
        assert!((0.0005..0.1).contains(&time), "{time}");
    });
}

/// Returns the milliseconds of a launch.
fn time(cuda: &Cuda) -> f32 {
    cuda.begin();
    let (stream, function) = (cuda.stream(), add(cuda));
    let events = [(); 2].map(|()| {
        let mut event: Handle = 0;
        assert_eq!(call!(cuda, cuEventCreate(&mut event => &mut Handle, 0 => u32)), 0);
        event
    });
    let record = |event: Handle| assert_eq!(call!(cuda, cuEventRecord(event => Handle, stream => Handle)), 0);
    let mut milliseconds = 0.0;
    let mut elapsed = || {
        call!(cuda, cuEventElapsedTime_v2(
            &mut milliseconds => &mut f32, events[0] => Handle, events[1] => Handle
        ))
    };
    assert_eq!(elapsed(), INVALID_HANDLE, "the events are not recorded");
    record(events[0]);
    assert_eq!(cuda.launch(function, 10, 256, [0, 0], stream), 0);
    record(events[1]);
    assert_eq!(call!(cuda, cuEventSynchronize(events[1] => Handle)), 0);
    assert_eq!(elapsed(), 0);
    milliseconds
}
