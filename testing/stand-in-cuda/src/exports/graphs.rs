//! Captures and graphs. The node of a graph has a handle made from the graph's and its place.

use std::ffi::{c_int, c_uint, c_ulonglong};

use crate::abi::{Handle, Out};
use crate::capture::CaptureMode;
use crate::context::exchange_capture_mode;
use crate::errors::{INVALID_HANDLE, INVALID_VALUE};

/// Lowest bit of the place of a node in its handle; the handle of the graph is below.
const NODE_SHIFT: u32 = 44;
/// Most nodes that have a handle.
const MOST_NODES: usize = 1 << (usize::BITS - NODE_SHIFT - 1);

driver_functions! {
    fn cuStreamBeginCapture_v2(machine, stream: Handle, mode: c_uint) {
        machine.begin_capture(stream, mode)
    }

    fn cuStreamEndCapture(machine, stream: Handle, out: Out<Handle>) {
        let graph = machine.end_capture(stream)?;
        out.give(graph)
    }

    fn cuThreadExchangeStreamCaptureMode(_machine, mode: Out<c_uint>) {
        let wanted = CaptureMode::new(mode.read()?).ok_or(INVALID_VALUE)?;
        mode.give(exchange_capture_mode(wanted) as c_uint)
    }

    fn cuGraphCreate(machine, out: Out<Handle>, _flags: c_uint) {
        out.give(machine.graphs.add(crate::capture::Graph::default()))
    }

    fn cuGraphDestroy(machine, graph: Handle) {
        machine.graphs.remove(graph).map(|_| ())
    }

    fn cuGraphGetNodes(machine, graph: Handle, nodes: Out<Handle>, n_nodes: Out<usize>) {
        let n_found = machine.graphs.get(graph)?.nodes.len().min(MOST_NODES);
        if nodes.is_null() {
            return n_nodes.give(n_found);
        }
        let n_wanted = n_nodes.read()?;
        nodes.give_all((0..n_wanted).map(|place| if place < n_found { node_handle(graph, place) } else { 0 }))?;
        n_nodes.give(n_wanted.min(n_found))
    }

    fn cuGraphNodeGetType(machine, node: Handle, out: Out<c_int>) {
        let place = (node >> NODE_SHIFT).checked_sub(1).ok_or(INVALID_HANDLE)?;
        let graph = machine.graphs.get(node & ((1 << NODE_SHIFT) - 1))?;
        out.give(graph.nodes.get(place).ok_or(INVALID_HANDLE)?.kind())
    }

    fn cuGraphInstantiateWithFlags(machine, out: Out<Handle>, graph: Handle, _flags: c_ulonglong) {
        out.give(machine.instantiate(graph)?)
    }

    fn cuGraphExecDestroy(machine, executable: Handle) {
        machine.executables.remove(executable).map(|_| ())
    }

    fn cuGraphUpload(machine, executable: Handle, stream: Handle) {
        machine.executables.get(executable)?;
        machine.working_stream(stream).map(|_| ())
    }
}

fn node_handle(graph: Handle, place: usize) -> Handle {
    ((place + 1) << NODE_SHIFT) + graph
}
