//! Functions that wait, or that call the program. They let other calls in meanwhile.

use std::ffi::c_void;
use std::thread::sleep;
use std::time::Instant;

use super::attempt;
use crate::abi::{Handle, HostFunction};
use crate::capture::{HostNode, Node};
use crate::errors::{Answer, CAPTURED_EVENT, Code, INVALID_VALUE, NOT_READY, SUCCESS};
use crate::machine::{Machine, machine};

/// Names of the functions.
pub(super) const NAMES: &[&str] = &[
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuEventSynchronize",
    "cuEventQuery",
    "cuLaunchHostFunc",
    "cuGraphLaunch",
];

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Code {
    wait(attempt("cuCtxSynchronize", |machine| {
        let gpu = machine.current()?;
        let streams: Vec<Handle> =
            machine.streams.iter().filter(|(_, stream)| stream.gpu == gpu).map(|(handle, _)| handle).collect();
        streams.iter().try_for_each(|stream| machine.refuse_captured(*stream))?;
        Ok((gpu, streams.iter().filter_map(|stream| machine.streams.get(*stream).ok()?.progress.ready).max()))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: Handle) -> Code {
    wait(attempt("cuStreamSynchronize", |machine| {
        machine.refuse_captured(stream)?;
        let stream = machine.working_stream(stream)?;
        Ok((stream.gpu, stream.progress.ready))
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: Handle) -> Code {
    query(attempt("cuStreamQuery", |machine| {
        machine.refuse_captured(stream)?;
        Ok(machine.working_stream(stream)?.progress.ready)
    }))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: Handle) -> Code {
    wait(attempt("cuEventSynchronize", |machine| event_ready(machine, event)))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: Handle) -> Code {
    query(attempt("cuEventQuery", |machine| event_ready(machine, event).map(|(_, ready)| ready)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(stream: Handle, function: Option<HostFunction>, data: *mut c_void) -> Code {
    let call = attempt("cuLaunchHostFunc", |machine| {
        let function = function.ok_or(INVALID_VALUE)?;
        let node = HostNode { function, data: data.expose_provenance() };
        match machine.working_stream(stream)?.capture {
            Some(capture) => machine.record(capture, Node::Host(node)).map(|()| Vec::new()),
            None => Ok(vec![node]),
        }
    });
    // SAFETY: the program vouches for its function and the data.
    unsafe { call_program(call) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphLaunch(executable: Handle, stream: Handle) -> Code {
    let calls = attempt("cuGraphLaunch", |machine| machine.replay(executable, stream));
    // SAFETY: the program vouches for the functions in its graph and their data.
    unsafe { call_program(calls) }
}

/// Returns the GPU of an event, and when the event happens.
fn event_ready(machine: &Machine, event: Handle) -> Answer<(usize, Option<Instant>)> {
    let event = machine.events.get(event)?;
    machine.gpus[event.gpu].check()?;
    match event.record {
        Some(record) if record.capture.is_some() => Err(CAPTURED_EVENT),
        record => Ok((event.gpu, record.and_then(|record| record.progress.ready))),
    }
}

/// Waits until work on a GPU is done, after which its pool gives unused memory back.
fn wait(answer: Answer<(usize, Option<Instant>)>) -> Code {
    let (gpu, ready) = match answer {
        Ok(work) => work,
        Err(code) => return code,
    };
    if let Some(left) = ready.map(|ready| ready.saturating_duration_since(Instant::now())) {
        sleep(left);
    }
    match &mut *machine() {
        Ok(machine) => {
            let gpu = &mut machine.gpus[gpu];
            gpu.counts.n_syncs += 1;
            gpu.books.trim_pool();
            gpu.check().err().unwrap_or(SUCCESS)
        }
        Err(code) => *code,
    }
}

fn query(answer: Answer<Option<Instant>>) -> Code {
    match answer {
        Ok(Some(ready)) if ready > Instant::now() => NOT_READY,
        Ok(_) => SUCCESS,
        Err(code) => code,
    }
}

/// Calls functions of the program.
///
/// # Safety
/// The program vouches for the functions and their data.
unsafe fn call_program(calls: Answer<Vec<HostNode>>) -> Code {
    match calls {
        Ok(calls) => {
            for HostNode { function, data } in calls {
                // SAFETY: the program vouches for it.
                unsafe { function(std::ptr::with_exposed_provenance_mut(data)) };
            }
            SUCCESS
        }
        Err(code) => code,
    }
}
