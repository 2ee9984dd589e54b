//! Streams.

use std::ffi::{c_int, c_uint, c_ulonglong};

use crate::abi::{Handle, Out};
use crate::errors::Answer;
use crate::machine::Machine;
use crate::streams::Stream;

/// States of a stream's capture (`CUstreamCaptureStatus`).
const NOT_CAPTURED: c_int = 0;
const CAPTURED: c_int = 1;
const INVALIDATED: c_int = 2;

driver_functions! {
    fn cuStreamCreate(machine, out: Out<Handle>, flags: c_uint) {
        let gpu = machine.current()?;
        out.give(machine.streams.add(Stream::new(gpu, flags, 0)))
    }

    fn cuStreamCreateWithPriority(machine, out: Out<Handle>, flags: c_uint, priority: c_int) {
        let gpu = machine.current()?;
        out.give(machine.streams.add(Stream::new(gpu, flags, priority.clamp(-5, 0))))
    }

    fn cuStreamDestroy_v2(machine, stream: Handle) {
        let gpu = machine.streams.remove(stream)?.gpu;
        machine.gpus[gpu].check()
    }

    fn cuStreamGetFlags(machine, stream: Handle, out: Out<c_uint>) {
        out.give(machine.stream(stream)?.flags)
    }

    fn cuStreamGetPriority(machine, stream: Handle, out: Out<c_int>) {
        out.give(machine.stream(stream)?.priority)
    }

    fn cuStreamGetCtx(machine, stream: Handle, out: Out<Handle>) {
        out.give(crate::context::context_handle(machine.stream(stream)?.gpu))
    }

    fn cuStreamGetId(machine, stream: Handle, out: Out<c_ulonglong>) {
        out.give(machine.stream_handle(stream)? as c_ulonglong)
    }

    fn cuStreamWaitEvent(machine, stream: Handle, event: Handle, _flags: c_uint) {
        let record = machine.events.get(event)?.record;
        machine.wait_for(stream, record)
    }

    fn cuStreamIsCapturing(machine, stream: Handle, out: Out<c_int>) {
        out.give(capture_state(machine, stream)?.0)
    }

    fn cuStreamGetCaptureInfo_v2(
        machine,
        stream: Handle,
        state: Out<c_int>,
        id: Out<c_ulonglong>,
        graph: Out<Handle>,
        dependencies: Out<usize>,
        n_dependencies: Out<usize>,
    ) {
        give_capture(machine, stream, (state, id, graph))?;
        dependencies.give_if_wanted(0);
        n_dependencies.give_if_wanted(0);
        Ok(())
    }

    fn cuStreamGetCaptureInfo_v3(
        machine,
        stream: Handle,
        state: Out<c_int>,
        id: Out<c_ulonglong>,
        graph: Out<Handle>,
        dependencies: Out<usize>,
        edges: Out<usize>,
        n_dependencies: Out<usize>,
    ) {
        give_capture(machine, stream, (state, id, graph))?;
        dependencies.give_if_wanted(0);
        edges.give_if_wanted(0);
        n_dependencies.give_if_wanted(0);
        Ok(())
    }
}

/// Returns the state and the number of a stream's capture.
fn capture_state(machine: &mut Machine, stream: Handle) -> Answer<(c_int, c_ulonglong)> {
    let Some(id) = machine.stream(stream)?.capture else { return Ok((NOT_CAPTURED, 0)) };
    let is_invalid = machine.captures.get(&id).is_none_or(|capture| capture.is_invalid);
    Ok((if is_invalid { INVALIDATED } else { CAPTURED }, id))
}

/// Gives the state and the number. The graph of a capture has no handle before its end.
fn give_capture(
    machine: &mut Machine,
    stream: Handle,
    (state, id, graph): (Out<c_int>, Out<c_ulonglong>, Out<Handle>),
) -> Answer {
    let found = capture_state(machine, stream)?;
    state.give(found.0)?;
    id.give_if_wanted(found.1);
    graph.give_if_wanted(0);
    Ok(())
}
