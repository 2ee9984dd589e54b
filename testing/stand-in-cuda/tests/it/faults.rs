//! Failures that the scenario asks for.

use std::ffi::c_int;

use crate::cuda::{Cuda, MIB, OUT_OF_MEMORY, add, call};
use crate::process::{on, one_gpu};

const ILLEGAL_ADDRESS: c_int = 700;
const LAUNCH_OUT_OF_RESOURCES: c_int = 701;
const LAUNCH_FAILED: c_int = 719;

/// Returns the numbers of the allocations of 1 MiB, of 100, that fail.
fn failed(cuda: &Cuda) -> Vec<usize> {
    cuda.begin();
    (1..=100).filter(|_| cuda.allocate(MIB) == Err(OUT_OF_MEMORY)).collect()
}

#[test]
fn allocations_fail_by_their_number() {
    let remains = on(&one_gpu("fail-allocation 3 50\nfail-allocation-every 40"), |cuda| {
        assert_eq!(failed(cuda), [3, 40, 50, 80]);
        // One that failed takes nothing.
        assert_eq!(cuda.left(), (512 - 96) * MIB);
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("refused"), remains.number("injected"), remains.number("allocations")), (4, 4, 96));
}

#[test]
fn allocations_fail_by_their_size() {
    on(&one_gpu("fail-allocation-above 2MiB"), |cuda| {
        cuda.begin();
        assert!(cuda.allocate(2 * MIB).is_ok());
        assert_eq!(cuda.allocate(2 * MIB + 1), Err(OUT_OF_MEMORY));
    });
}

#[test]
fn allocations_fail_by_chance() {
    let remains = on(&one_gpu("fail-allocation-chance 0.3 5"), |cuda| {
        let n_failed = failed(cuda).len();
        assert!((15..45).contains(&n_failed), "{n_failed}");
    });
    assert!(remains.is_none_or(|remains| remains.number("injected") > 0));
}

#[test]
fn a_fault_makes_the_context_unusable() {
    let remains = on(&one_gpu("fail-launch 2 700"), |cuda| {
        let context = cuda.begin();
        let (stream, function, address) = (cuda.stream(), add(cuda), cuda.allocate(MIB).unwrap());
        let launch = || cuda.launch(function, 1, 1, [address, address], stream);
        assert_eq!((launch(), cuda.synchronize(stream)), (0, 0));
        assert_eq!(launch(), 0, "the fault comes after the launch");
        assert_eq!([launch(), cuda.synchronize(stream), cuda.free(address)], [ILLEGAL_ADDRESS; 3]);
        assert_eq!(cuda.allocate(MIB), Err(ILLEGAL_ADDRESS));
        assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
        assert_eq!(cuda.upload(address, &[1], stream), ILLEGAL_ADDRESS);
        // A new context works.
        assert_eq!(call!(cuda, cuDevicePrimaryCtxReset_v2(0 => c_int)), 0);
        cuda.begin();
        assert_eq!(cuda.left(), 512 * MIB);
        assert!(cuda.allocate(MIB).is_ok());
    });
    let Some(remains) = remains else { return };
    assert!(remains.books["gpus"][0]["poison"].is_null());
    assert_eq!(remains.number("launches"), 2);
}

#[test]
fn a_refused_launch_leaves_the_context() {
    on(&one_gpu("fail-launch 1 701\nfail-launch 2 719"), |cuda| {
        cuda.begin();
        let (stream, function) = (cuda.stream(), add(cuda));
        let launch = || cuda.launch(function, 1, 1, [0, 0], stream);
        assert_eq!([launch(), launch(), launch()], [LAUNCH_OUT_OF_RESOURCES, 0, LAUNCH_FAILED]);
    });
}

#[test]
fn functions_fail_with_their_code() {
    on(&format!("fail cuStreamCreate 46\nfail cuMemAlloc_v2 2 3\n{}", one_gpu("")), |cuda| {
        cuda.begin();
        let mut stream = 0_usize;
        assert_eq!(call!(cuda, cuStreamCreate(&mut stream => &mut usize, 0 => u32)), 46);
        assert_eq!([(); 4].map(|()| cuda.allocate(MIB).is_ok()), [true, true, false, false]);
    });
}

#[test]
fn a_gpu_can_be_lost() {
    on(&format!("fail * 999 5\n{}", one_gpu("")), |cuda| {
        cuda.begin();
        assert!(cuda.allocate(MIB).is_ok());
        assert_eq!(cuda.allocate(MIB), Err(999));
        assert_eq!((call!(cuda, cuInit(0 => u32)), cuda.free(0)), (999, 999));
        let mut text = std::ptr::null::<u8>();
        assert_eq!(call!(cuda, cuGetErrorString(999 => c_int, &mut text => &mut *const u8)), 0);
    });
}

#[test]
fn a_driver_can_refuse_to_start() {
    on(&format!("fail cuInit 803\n{}", one_gpu("")), |cuda| {
        assert_eq!(call!(cuda, cuInit(0 => u32)), 803);
        let mut n_gpus = 0;
        assert_eq!(call!(cuda, cuDeviceGetCount(&mut n_gpus => &mut c_int)), 3);
    });
}
