//! Capture and replay.

use std::ffi::{c_int, c_void};

use crate::cuda::{Cuda, Handle, INVALID_HANDLE, INVALID_VALUE, MIB, add, call};
use crate::process::{on, one_gpu};

const CAPTURE_UNSUPPORTED: c_int = 900;
const CAPTURE_INVALIDATED: c_int = 901;
const CAPTURE_ISOLATION: c_int = 905;

fn begin(cuda: &Cuda, stream: Handle) -> c_int {
    call!(cuda, cuStreamBeginCapture_v2(stream => Handle, 0 => u32))
}

fn end(cuda: &Cuda, stream: Handle) -> Result<Handle, c_int> {
    let mut graph = 0;
    let code = call!(cuda, cuStreamEndCapture(stream => Handle, &mut graph => &mut Handle));
    if code == 0 { Ok(graph) } else { Err(code) }
}

fn instantiate(cuda: &Cuda, graph: Handle) -> Handle {
    let mut executable = 0;
    let code = call!(cuda, cuGraphInstantiateWithFlags(&mut executable => &mut Handle, graph => Handle, 0 => u64));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuGraphDestroy(graph => Handle)), 0);
    executable
}

/// Returns the kinds of the nodes of a graph.
fn kinds(cuda: &Cuda, graph: Handle) -> Vec<c_int> {
    let mut n_nodes = 0_usize;
    let nodes_of = |nodes: *mut Handle, n_nodes: &mut usize| call!(cuda, cuGraphGetNodes(graph => Handle, nodes => *mut Handle, n_nodes => &mut usize));
    assert_eq!(nodes_of(std::ptr::null_mut(), &mut n_nodes), 0);
    let mut nodes = vec![0; n_nodes];
    assert_eq!(nodes_of(nodes.as_mut_ptr(), &mut n_nodes), 0);
    let kind = |node: &Handle| {
        let mut kind = -1;
        assert_eq!(call!(cuda, cuGraphNodeGetType(*node => Handle, &mut kind => &mut c_int)), 0);
        kind
    };
    nodes.iter().map(kind).collect()
}

fn replay(cuda: &Cuda, executable: Handle, stream: Handle) -> c_int {
    call!(cuda, cuGraphLaunch(executable => Handle, stream => Handle))
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the test gives the address of a number.
    unsafe { *data.cast::<u32>() += 1 };
}

#[test]
fn launches_are_captured_and_replayed() {
    let remains = on(&format!("read kept\n{}", one_gpu("")), |cuda| {
        cuda.begin();
        let (stream, function, address) = (cuda.stream(), add(cuda), cuda.allocate(5 * MIB).unwrap());
        let mut n_calls = 0_u32;
        assert_eq!(begin(cuda, stream), 0);
        assert_eq!(begin(cuda, stream), INVALID_VALUE);
        for _ in 0..3 {
            assert_eq!(cuda.launch(function, 1, 32, [address, address + 512], stream), 0);
        }
        let value = [5; 4];
        assert_eq!(cuda.upload(address, &value, stream), 0);
        assert_eq!(
            call!(cuda, cuLaunchHostFunc(
                stream => Handle, count => unsafe extern "C" fn(*mut c_void), (&raw mut n_calls).cast() => *mut c_void
            )),
            0
        );
        let mut state = -1;
        assert_eq!(call!(cuda, cuStreamIsCapturing(stream => Handle, &mut state => &mut c_int)), 0);
        let graph = end(cuda, stream).unwrap();
        assert_eq!((state, kinds(cuda, graph)), (1, vec![0, 0, 0, 1, 3]));
        assert_eq!((n_calls, cuda.read(address, 4, stream)), (0, Ok(vec![0; 4])), "nothing has run");
        let executable = instantiate(cuda, graph);
        assert_eq!(call!(cuda, cuGraphUpload(executable => Handle, stream => Handle)), 0);
        assert_eq!([replay(cuda, executable, stream), replay(cuda, executable, stream)], [0, 0]);
        // SAFETY: the functions of the graph have returned.
        assert_eq!(unsafe { (&raw const n_calls).read_volatile() }, 2);
        assert_eq!(cuda.read(address, 4, stream), Ok(vec![5; 4]));
        cuda.free(address);
        assert_eq!(replay(cuda, executable, stream), INVALID_VALUE, "its copy is to freed memory");
        assert_eq!(call!(cuda, cuGraphExecDestroy(executable => Handle)), 0);
        assert_eq!(replay(cuda, executable, stream), INVALID_HANDLE);
    });
    let Some(remains) = remains else { return };
    let names = ["launches", "replays", "replayed_launches", "dispatches", "wild"];
    assert_eq!(names.map(|name| remains.number(name)), [0, 3, 9, 3, 7]);
    let graphs = &remains.books["graphs"];
    assert_eq!((&graphs["captured"], &graphs["captured_launches"], &graphs["live"]), (&1.into(), &3.into(), &0.into()));
    assert_eq!(remains.books["kernels"]["add"]["replayed"], 9);
}

#[test]
fn allocations_make_a_capture_invalid() {
    on(&one_gpu(""), |cuda| {
        cuda.begin();
        let stream = cuda.stream();
        assert_eq!(begin(cuda, 0), CAPTURE_UNSUPPORTED);
        assert_eq!(begin(cuda, stream), 0);
        assert_eq!(cuda.allocate(MIB), Err(CAPTURE_UNSUPPORTED));
        assert_eq!(end(cuda, stream), Err(CAPTURE_INVALIDATED));
        assert_eq!((end(cuda, stream), cuda.allocate(MIB).is_ok()), (Err(INVALID_VALUE), true));

        assert_eq!(begin(cuda, stream), 0);
        assert_eq!(cuda.synchronize(stream), CAPTURE_UNSUPPORTED);
        assert_eq!(end(cuda, stream), Err(CAPTURE_INVALIDATED));

        // A thread that allows itself unsafe calls may allocate.
        assert_eq!(begin(cuda, stream), 0);
        let mut mode = 2_u32;
        assert_eq!(call!(cuda, cuThreadExchangeStreamCaptureMode(&mut mode => &mut u32)), 0);
        assert_eq!((mode, cuda.allocate(MIB).is_ok(), end(cuda, stream).is_ok()), (0, true, true));
    });
}

#[test]
fn asynchronous_allocations_are_nodes() {
    on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (stream, mut address) = (cuda.stream(), 0_u64);
        assert_eq!(begin(cuda, stream), 0);
        assert_eq!(call!(cuda, cuMemAllocAsync(&mut address => &mut u64, MIB => usize, stream => Handle)), 0);
        assert_eq!(call!(cuda, cuMemFreeAsync(address => u64, stream => Handle)), 0);
        assert_eq!(kinds(cuda, end(cuda, stream).unwrap()), [10, 11]);
    });
}

#[test]
fn streams_join_a_capture_by_its_events() {
    on(&one_gpu(""), |cuda| {
        cuda.begin();
        let (stream, other, function) = (cuda.stream(), cuda.stream(), add(cuda));
        let mut event = 0;
        assert_eq!(call!(cuda, cuEventCreate(&mut event => &mut Handle, 0 => u32)), 0);
        let record = |on: Handle| call!(cuda, cuEventRecord(event => Handle, on => Handle));
        let wait = |on: Handle| call!(cuda, cuStreamWaitEvent(on => Handle, event => Handle, 0 => u32));
        assert_eq!([begin(cuda, stream), record(stream), wait(other)], [0, 0, 0]);
        assert_eq!(cuda.launch(function, 1, 1, [0, 0], other), 0);
        assert_eq!((record(other), wait(stream)), (0, 0));
        assert_eq!(kinds(cuda, end(cuda, stream).unwrap()), [0]);
        assert_eq!(cuda.synchronize(other), 0, "its capture has ended too");

        assert_eq!([record(other), begin(cuda, stream)], [0, 0]);
        assert_eq!((wait(stream), end(cuda, stream)), (CAPTURE_ISOLATION, Err(CAPTURE_INVALIDATED)));
    });
}
