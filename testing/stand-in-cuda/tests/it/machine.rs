//! Devices, several GPUs, and the functions of the library itself.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::cuda::{Cuda, Handle, INVALID_HANDLE, MIB, NOT_INITIALIZED, OUT_OF_MEMORY, add, call};
use crate::process::{on, one_gpu};

const INVALID_DEVICE: c_int = 101;
const INVALID_CONTEXT: c_int = 201;
const NOT_SUPPORTED: c_int = 801;

const TWO: &str = "gpu First\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\nmemory 1GiB\ncapability 9.0\n\
                   gpu Second\nmemory 2GiB\ncapability 7.5\nmultiprocessors 11\n";

#[test]
fn devices_have_their_facts() {
    on(TWO, |cuda| {
        let mut count = 0;
        assert_eq!(call!(cuda, cuDeviceGetCount(&mut count => &mut c_int)), NOT_INITIALIZED);
        assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
        assert_eq!((call!(cuda, cuDeviceGetCount(&mut count => &mut c_int)), count), (0, 2));
        let text = |function: &str, gpu: c_int| {
            let mut text = [0_u8; 40];
            let code = match function {
                "name" => call!(cuda, cuDeviceGetName(&mut text => &mut [u8; 40], 40 => c_int, gpu => c_int)),
                _ => call!(cuda, cuDeviceGetPCIBusId(&mut text => &mut [u8; 40], 40 => c_int, gpu => c_int)),
            };
            let text = CStr::from_bytes_until_nul(&text).unwrap().to_str().unwrap().to_owned();
            if code == 0 { Ok(text) } else { Err(code) }
        };
        assert_eq!((text("name", 1), text("bus", 1)), (Ok("Second".into()), Ok("0000:02:00.0".into())));
        assert_eq!(text("name", 2), Err(INVALID_DEVICE));
        let attribute = |number: c_int, gpu: c_int| {
            let mut value = 0;
            assert_eq!(
                call!(cuda, cuDeviceGetAttribute(
                    &mut value => &mut c_int, number => c_int, gpu => c_int
                )),
                0
            );
            value
        };
        assert_eq!([75, 76, 16, 1, 10].map(|number| attribute(number, 1)), [7, 5, 11, 1024, 32]);
        assert_eq!([75, 16, 97].map(|number| attribute(number, 0)), [9, 132, 227 << 10]);
        let mut uuid = [0_u8; 16];
        assert_eq!(call!(cuda, cuDeviceGetUuid_v2(&mut uuid => &mut [u8; 16], 0 => c_int)), 0);
        assert_eq!((uuid[0], uuid[1], uuid[15]), (0x00, 0x11, 0xff));
    });
}

#[test]
fn gpus_have_their_own_memory() {
    let remains = on(TWO, |cuda| {
        let (first, second) = (cuda.begin_on(0), cuda.begin_on(1));
        assert_eq!(cuda.left(), 1536 * MIB);
        let there = cuda.allocate(1000 * MIB).unwrap();
        let (stream, function) = (cuda.stream(), add(cuda));
        assert_eq!(call!(cuda, cuCtxSetCurrent(first => Handle)), 0);
        assert_eq!(cuda.allocate(600 * MIB), Err(OUT_OF_MEMORY));
        let here = cuda.allocate(100 * MIB).unwrap();
        assert_eq!(cuda.launch(function, 1, 1, [there, there], cuda.stream()), INVALID_HANDLE);
        assert_eq!(cuda.launch(function, 1, 1, [here, there], stream), 0, "and its pointer is wild");
        let enable = || call!(cuda, cuCtxEnablePeerAccess(first => Handle, 0 => u32));
        assert_eq!(call!(cuda, cuCtxSetCurrent(second => Handle)), 0);
        assert_eq!([enable(), enable()], [0, 704]);
        assert_eq!(cuda.launch(function, 1, 1, [here, there], stream), 0);
        assert_eq!(
            call!(cuda, cuMemcpyPeerAsync(
                here => u64, first => Handle, there => u64, second => Handle, MIB => usize, stream => Handle
            )),
            0
        );
        assert_eq!((cuda.free(here), cuda.free(there)), (0, 0), "from whichever context");
        assert_eq!(call!(cuda, cuCtxEnablePeerAccess(second => Handle, 0 => u32)), INVALID_DEVICE);
    });
    let Some(remains) = remains else { return };
    let wild = [0, 1].map(|gpu| remains.books["gpus"][gpu]["wild"].as_u64().unwrap());
    assert_eq!((wild, remains.number("bytes_within")), ([0, 1], MIB as u64));
}

#[test]
fn contexts_are_counted() {
    on(&one_gpu(""), |cuda| {
        let context = cuda.begin();
        cuda.begin();
        let release = || call!(cuda, cuDevicePrimaryCtxRelease_v2(0 => c_int));
        cuda.allocate(MIB).unwrap();
        assert_eq!((release(), cuda.left()), (0, 510 * MIB));
        assert_eq!((release(), release()), (0, INVALID_CONTEXT));
        assert_eq!(cuda.allocate(MIB), Err(INVALID_CONTEXT));
        assert_eq!((cuda.begin(), cuda.left()), (context, 512 * MIB));
        assert_eq!(call!(cuda, cuCtxSetCurrent(0 => Handle)), 0);
        assert_eq!(cuda.allocate(MIB), Err(INVALID_CONTEXT));
    });
}

#[test]
fn a_context_that_does_not_fit_is_refused() {
    on(&one_gpu("others 600MiB"), |cuda| {
        assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
        let mut context = 0;
        assert_eq!(call!(cuda, cuDevicePrimaryCtxRetain(&mut context => &mut Handle, 0 => c_int)), OUT_OF_MEMORY);
    });
}

#[test]
fn absent_functions_name_themselves_once() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        assert_eq!([(); 3].map(|()| call!(cuda, cuMemCreate())), [NOT_SUPPORTED; 3]);
    });
    assert!(remains.is_none_or(|remains| remains.stderr.matches("cuMemCreate is not supported").count() == 1));
}

#[test]
fn functions_are_found_by_name() {
    on(&one_gpu(""), |cuda| {
        let find = |name: &str| {
            let (name, mut function, mut state) = (CString::new(name).unwrap(), std::ptr::null_mut(), -1);
            let code = call!(cuda, cuGetProcAddress_v2(
                name.as_ptr() => *const c_char, &mut function => &mut *mut c_void, 12000 => c_int, 0 => u64,
                &mut state => &mut c_int
            ));
            (code, function, state)
        };
        assert_eq!(find("cuMemAlloc"), (0, cuda.symbol("cuMemAlloc_v2"), 0));
        assert_eq!(find("cuInit"), (0, cuda.symbol("cuInit"), 0));
        assert_eq!(find("cuNothing"), (500, std::ptr::null_mut(), 1));
    });
}

#[test]
fn every_function_of_the_driver_is_there() {
    let listed = include_str!("../../src/exports/absent.rs").split("absent! {").nth(1).unwrap();
    let absent: BTreeSet<&str> = listed.split_whitespace().filter(|word| word.starts_with("cu")).collect();
    assert!(absent.len() > 350);
    on(&one_gpu(""), |cuda| {
        assert!(absent.iter().all(|name| !cuda.symbol(name).is_null()));
    });
}

/// Books in short, as the library gives them.
fn usage(cuda: &Cuda) -> [u64; 12] {
    let mut usage = [0; 12];
    assert_eq!(call!(cuda, stand_in_cuda_usage(0 => c_int, &mut usage => &mut [u64; 12])), 0);
    usage
}

#[test]
fn a_program_can_look_at_the_books() {
    on(&one_gpu(""), |cuda| {
        cuda.begin();
        let address = cuda.allocate(99 * MIB).unwrap();
        cuda.free(address);
        let mib = |size: u64| size / MIB as u64;
        let books = usage(cuda);
        assert_eq!(books[..7].iter().copied().map(mib).collect::<Vec<_>>(), [1024, 512, 512, 0, 612, 612, 99]);
        assert_eq!(books[7..], [1, 1, 0, 0, 0]);
        assert_eq!(call!(cuda, stand_in_cuda_reset_peak()), 0);
        assert_eq!(usage(cuda)[4..7].iter().copied().map(mib).collect::<Vec<_>>(), [512, 512, 0]);
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = CString::new(file.path().to_str().unwrap()).unwrap();
        assert_eq!(call!(cuda, stand_in_cuda_report(path.as_ptr() => *const c_char)), 0);
        let report: serde_json::Value = serde_json::from_reader(file).unwrap();
        assert_eq!(report["gpus"][0]["capacity"], 1 << 30);
    });
}
