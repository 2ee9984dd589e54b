//! Recording streams into graphs, and running graphs.

use std::thread;

use crate::abi::Handle;
use crate::capture::{Capture, CaptureMode, Graph, HostNode, Node};
use crate::context;
use crate::errors::{
    Answer, CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, INVALID_VALUE,
};
use crate::machine::Machine;
use crate::streams::{CaptureId, Record};

impl Machine {
    /// Begins a capture.
    pub(crate) fn begin_capture(&mut self, stream: Handle, mode: u32) -> Answer {
        let mode = CaptureMode::new(mode).ok_or(INVALID_VALUE)?;
        let is_null = stream <= 2;
        let handle = self.stream_handle(stream)?;
        let (next, on) = (self.last_capture + 1, self.working_stream(handle)?);
        if is_null || on.capture.is_some() {
            return Err(if is_null { CAPTURE_UNSUPPORTED } else { INVALID_VALUE });
        }
        on.capture = Some(next);
        self.last_capture = next;
        self.graph_counts.n_captures += 1;
        let capture = Capture {
            stream: handle,
            mode,
            thread: thread::current().id(),
            is_invalid: false,
            graph: Graph::default(),
        };
        self.captures.insert(next, capture);
        Ok(())
    }

    /// Ends a capture, and returns the handle of its graph.
    pub(crate) fn end_capture(&mut self, stream: Handle) -> Answer<Handle> {
        let handle = self.stream_handle(stream)?;
        let id = self.stream(handle)?.capture.ok_or(INVALID_VALUE)?;
        let capture = self.captures.get(&id).ok_or(INVALID_VALUE)?;
        if capture.stream != handle {
            return Err(CAPTURE_UNMATCHED);
        }
        self.streams.values_mut().filter(|stream| stream.capture == Some(id)).for_each(|stream| stream.capture = None);
        let capture = self.captures.remove(&id).ok_or(INVALID_VALUE)?;
        if capture.is_invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        self.graph_counts.n_captured += 1;
        Ok(self.graphs.add(capture.graph))
    }

    /// Records work.
    pub(crate) fn record(&mut self, capture: CaptureId, node: Node) -> Answer {
        let capture = self.captures.get_mut(&capture).ok_or(INVALID_VALUE)?;
        if capture.is_invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        capture.graph.nodes.push(node);
        Ok(())
    }

    /// Refuses a call that captures forbid, such as an allocation, and makes these captures invalid.
    pub(crate) fn refuse_in_captures(&mut self) -> Answer {
        let (mode, thread) = (context::capture_mode(), thread::current().id());
        let forbids = |capture: &&mut Capture| match (mode, capture.mode) {
            (CaptureMode::Relaxed, _) | (_, CaptureMode::Relaxed) => false,
            (CaptureMode::ThreadLocal, _) | (_, CaptureMode::ThreadLocal) => capture.thread == thread,
            (CaptureMode::Global, CaptureMode::Global) => true,
        };
        let mut answer = Ok(());
        for capture in self.captures.values_mut().filter(forbids) {
            capture.is_invalid = true;
            answer = Err(CAPTURE_UNSUPPORTED);
        }
        answer
    }

    /// Refuses to wait for a stream that is captured, and makes the capture invalid.
    pub(crate) fn refuse_captured(&mut self, stream: Handle) -> Answer {
        match self.stream(stream)?.capture {
            None => Ok(()),
            Some(id) => {
                self.invalidate(id);
                Err(CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Lets a stream wait for an event, and join the capture of the event.
    pub(crate) fn wait_for(&mut self, stream: Handle, record: Option<Record>) -> Answer {
        let on = self.working_stream(stream)?;
        let Some(record) = record else { return Ok(()) };
        match (on.capture, record.capture) {
            (None, None) => on.progress.join(record.progress),
            (None, Some(id)) if self.captures.contains_key(&id) => self.stream(stream)?.capture = Some(id),
            (Some(own), Some(other)) if own == other => {}
            // The event belongs to other work than the capture records.
            (own, other) => {
                own.into_iter().chain(other).for_each(|id| self.invalidate(id));
                return Err(CAPTURE_ISOLATION);
            }
        }
        Ok(())
    }

    fn invalidate(&mut self, capture: CaptureId) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.is_invalid = true;
        }
    }

    /// Makes an executable graph.
    pub(crate) fn instantiate(&mut self, graph: Handle) -> Answer<Handle> {
        let graph = self.graphs.get(graph)?.clone();
        self.graph_counts.n_instantiated += 1;
        Ok(self.executables.add(graph))
    }

    /// Launches a graph: one dispatch, and one launch more for each of its kernels. Returns the functions of the program
    /// that must be called afterwards.
    pub(crate) fn replay(&mut self, executable: Handle, stream: Handle) -> Answer<Vec<HostNode>> {
        let graph = self.executables.get(executable)?.clone();
        let on = self.working_stream(stream)?;
        let gpu = on.gpu;
        if on.capture.is_some() {
            // A graph inside of a graph.
            return Err(CAPTURE_UNSUPPORTED);
        }
        self.gpus[gpu].counts.n_replays += 1;
        let mut calls = Vec::new();
        for node in &graph.nodes {
            match node {
                Node::Kernel(kernel) => self.run_kernel(kernel, stream, true)?,
                Node::Host(call) => calls.push(*call),
                Node::Copy(_) | Node::Rows(_) | Node::Set(_) | Node::Allocate | Node::Free => {
                    self.run_transfer(node)?;
                }
            }
        }
        Ok(calls)
    }
}
