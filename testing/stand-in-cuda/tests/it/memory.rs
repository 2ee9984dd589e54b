//! Memory: the line, grains, the pool, pinned memory and other processes.

use crate::cuda::{Handle, INVALID_HANDLE, INVALID_VALUE, MIB, NOT_FOUND, OUT_OF_MEMORY, call};
use crate::process::{on, one_gpu};

#[test]
fn memory_is_refused_at_the_line() {
    let remains = on(&one_gpu("context 24MiB\nothers 200MiB"), |cuda| {
        cuda.begin();
        assert_eq!(cuda.left(), 800 * MIB);
        assert_eq!(cuda.allocate(800 * MIB + 1), Err(OUT_OF_MEMORY));
        let all = cuda.allocate(800 * MIB).unwrap();
        assert_eq!((cuda.left(), cuda.allocate(1)), (0, Err(OUT_OF_MEMORY)));
        assert_eq!((cuda.free(all), cuda.left()), (0, 800 * MIB));
        assert_eq!(cuda.allocate(0), Err(INVALID_VALUE));
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("refused"), remains.number("largest_refused")), (2, 800 * MIB as u64 + 1));
    assert_eq!((remains.number("peak_held"), remains.number("peak_own")), (1 << 30, 824 * MIB as u64));
    let points = &remains.books["gpus"][0]["timeline"]["asked_held"];
    let held = points.as_array().unwrap().iter().map(|point| point[1].as_u64().unwrap()).max();
    assert_eq!(held, Some(1 << 30));
}

#[test]
fn small_allocations_share_a_grain() {
    on(&one_gpu("context 0"), |cuda| {
        cuda.begin();
        let begin = cuda.left();
        let first = cuda.allocate(1000).unwrap();
        let second = cuda.allocate(MIB).unwrap();
        let third = cuda.allocate(1).unwrap();
        assert_eq!((begin - cuda.left(), second - first, third - second), (2 * MIB, 1024, MIB as u64));
        let apart = cuda.allocate(MIB + 1).unwrap();
        assert_eq!((begin - cuda.left(), apart % (2 * MIB as u64)), (4 * MIB, 0));
        for address in [first, second] {
            assert_eq!((cuda.free(address), begin - cuda.left()), (0, 4 * MIB));
        }
        assert_eq!((cuda.free(third), cuda.free(apart), cuda.left()), (0, 0, begin));
    });
}

#[test]
fn wrong_frees_are_errors() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        let address = cuda.allocate(5 * MIB).unwrap();
        assert_eq!((cuda.free(address + 512), cuda.free(0), cuda.free(12345)), (INVALID_VALUE, 0, INVALID_VALUE));
        assert_eq!((cuda.free(address), cuda.free(address)), (0, INVALID_VALUE));
        let (mut start, mut size) = (0, 0);
        let mut range = |address: u64| {
            call!(cuda, cuMemGetAddressRange_v2(
                &mut start => &mut u64, &mut size => &mut usize, address => u64
            ))
        };
        assert_eq!(range(address), NOT_FOUND);
        let address = cuda.allocate(5 * MIB).unwrap();
        assert_eq!((range(address + 77), start, size), (0, address, 5 * MIB));
    });
    assert_eq!(remains.map(|remains| remains.stderr.matches("where no allocation starts").count()).unwrap_or(3), 3);
}

#[test]
fn the_pool_gives_back_when_its_stream_is_waited_for() {
    let remains = on(&one_gpu("context 0"), |cuda| {
        cuda.begin();
        let (stream, begin) = (cuda.stream(), cuda.left());
        let mut address = 0_u64;
        let from_pool = |address: &mut u64, size: usize| call!(cuda, cuMemAllocAsync(address => &mut u64, size => usize, stream => Handle));
        assert_eq!((from_pool(&mut address, 40 * MIB), begin - cuda.left()), (0, 64 * MIB));
        assert_eq!(call!(cuda, cuMemFreeAsync(address => u64, stream => Handle)), 0);
        assert_eq!(begin - cuda.left(), 64 * MIB);
        assert_eq!((cuda.synchronize(stream), cuda.left()), (0, begin));
        assert_eq!(from_pool(&mut address, 2000 * MIB), OUT_OF_MEMORY);

        let (mut pool, mut keep) = (0, 100 * MIB as u64);
        assert_eq!(call!(cuda, cuDeviceGetDefaultMemPool(&mut pool => &mut Handle, 0 => i32)), 0);
        assert_eq!(call!(cuda, cuMemPoolSetAttribute(pool => Handle, 4 => i32, &mut keep => &mut u64)), 0);
        assert_eq!(from_pool(&mut address, 200 * MIB), 0);
        assert_eq!(call!(cuda, cuMemFreeAsync(address => u64, stream => Handle)), 0);
        assert_eq!((cuda.synchronize(stream), begin - cuda.left()), (0, 128 * MIB));
        let mut reserved = 0_u64;
        assert_eq!(call!(cuda, cuMemPoolGetAttribute(pool => Handle, 5 => i32, &mut reserved => &mut u64)), 0);
        assert_eq!(reserved, 128 * MIB as u64);
        assert_eq!(call!(cuda, cuMemPoolTrimTo(pool => Handle, 0 => usize)), 0);
        assert_eq!(cuda.left(), begin);
        assert_eq!(cuda.synchronize(stream + 1), INVALID_HANDLE);
    });
    assert_eq!(remains.map_or(224 * MIB as u64, |remains| remains.number("peak_pool")), 224 * MIB as u64);
}

#[test]
fn pinned_memory_is_the_hosts() {
    let remains = on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (left, mut address) = (cuda.left(), std::ptr::null_mut::<u8>());
        assert_eq!(call!(cuda, cuMemAllocHost_v2(&mut address => &mut *mut u8, 10_000 => usize)), 0);
        // SAFETY: it was allocated with this size.
        unsafe { address.write_bytes(3, 10_000) };
        assert_eq!((cuda.left(), address.addr() % 4096), (left, 0));
        assert_eq!(call!(cuda, cuMemFreeHost(address => *mut u8)), 0);
        assert_eq!(call!(cuda, cuMemFreeHost(address => *mut u8)), INVALID_VALUE);
    });
    let Some(remains) = remains else { return };
    assert_eq!((remains.number("pinned"), remains.number("peak_pinned")), (0, 10_000));
}

#[test]
fn other_processes_come_and_go() {
    let remains = on(&one_gpu("context 24MiB\nothers 100MiB\nothers-at 2 900MiB\nothers-at 3 0"), |cuda| {
        cuda.begin();
        assert_eq!((cuda.allocate(200 * MIB).is_ok(), cuda.left()), (true, 700 * MIB));
        assert_eq!((cuda.allocate(200 * MIB), cuda.left()), (Err(OUT_OF_MEMORY), 0), "they get what is free");
        assert_eq!((cuda.allocate(200 * MIB).is_ok(), cuda.left()), (true, 600 * MIB));
    });
    assert_eq!(remains.map_or(1 << 30, |remains| remains.number("peak_held")), 1 << 30);
}

#[test]
fn the_trace_has_a_line_for_each_change() {
    let remains = on(&one_gpu("context 0"), |cuda| {
        cuda.begin();
        let address = cuda.allocate(5 * MIB).unwrap();
        assert_eq!(cuda.allocate(5000 * MIB), Err(OUT_OF_MEMORY));
        cuda.free(address);
    });
    let Some(remains) = remains else { return };
    let lines: Vec<Vec<&str>> = remains.trace.lines().map(|line| line.split(' ').collect()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line[1]).collect();
    assert_eq!(kinds, ["kind", "context", "alloc", "refused", "free"]);
    assert_eq!(lines[2][4..], ["5242880", "6291456", "6291456", "5242880"]);
    assert_eq!((lines[4][0], lines[4][3], &lines[4][6..]), ("4", lines[2][3], &["0", "0"][..]));
}
