//! Events.

use std::ffi::c_uint;

use crate::abi::{Handle, Out};
use crate::errors::{Answer, CAPTURED_EVENT, INVALID_HANDLE};
use crate::machine::Machine;
use crate::streams::{Event, Record};

/// Flag of an event without a time.
const WITHOUT_TIME: c_uint = 2;

/// Shortest time between two events in milliseconds, which is the resolution of a real one.
const RESOLUTION: f32 = 0.0005;

driver_functions! {
    fn cuEventCreate(machine, out: Out<Handle>, flags: c_uint) {
        let gpu = machine.current()?;
        out.give(machine.events.add(Event { gpu, has_time: flags & WITHOUT_TIME == 0, record: None }))
    }

    fn cuEventDestroy_v2(machine, event: Handle) {
        let gpu = machine.events.remove(event)?.gpu;
        machine.gpus[gpu].check()
    }

    fn cuEventRecord(machine, event: Handle, stream: Handle) {
        record(machine, event, stream)
    }

    fn cuEventRecordWithFlags(machine, event: Handle, stream: Handle, _flags: c_uint) {
        record(machine, event, stream)
    }

    fn cuEventElapsedTime(machine, out: Out<f32>, from: Handle, to: Handle) {
        out.give(elapsed(machine, from, to)?)
    }

    fn cuEventElapsedTime_v2(machine, out: Out<f32>, from: Handle, to: Handle) {
        out.give(elapsed(machine, from, to)?)
    }
}

fn record(machine: &mut Machine, event: Handle, stream: Handle) -> Answer {
    let gpu = machine.events.get(event)?.gpu;
    let on = machine.working_stream(stream)?;
    if on.gpu != gpu {
        return Err(INVALID_HANDLE);
    }
    let record = Record { progress: on.progress, capture: on.capture };
    machine.events.get_mut(event)?.record = Some(record);
    Ok(())
}

/// Returns the made-up milliseconds between two events.
fn elapsed(machine: &Machine, from: Handle, to: Handle) -> Answer<f32> {
    let time = |event: Handle| {
        let event = machine.events.get(event)?;
        machine.gpus[event.gpu].check()?;
        let record = event.record.filter(|_| event.has_time).ok_or(INVALID_HANDLE)?;
        if record.capture.is_some() { Err(CAPTURED_EVENT) } else { Ok(record.progress.clock) }
    };
    let milliseconds = (time(to)? - time(from)?) / 1000.0;
    Ok((milliseconds as f32).max(RESOLUTION))
}
