//! The record of a run as a trace file for `ui.perfetto.dev` and `chrome://tracing`.

use plimsoll_core::{Event, Record, StepEvent, TimeShares};
use serde_json::{Value, json};

/// Id of the only process in the trace.
const PROCESS: u32 = 1;
/// Track of the steps.
const STEPS: u32 = 1;
/// Track of what happened besides.
const EVENTS: u32 = 2;
const MICROSECONDS: f64 = 1e6;

/// Writes the steps of `records` as a trace in JSON: a slice for each step, divided by the owners of its time, counters of
/// memory and loss, and marks for other events.
///
/// The record holds how long each owner had the time of a step, and not when. So the owners of a step follow each other in
/// the order of [`TimeOwner::ALL`](plimsoll_core::TimeOwner::ALL), and the slices of an owner add up to its time in the
/// record.
///
/// ```
/// use plimsoll_core::{Event, Record, StepEvent, TimeOwner};
///
/// let mut step = StepEvent { step: 1, ..StepEvent::default() };
/// step.times.add(TimeOwner::Compute, 0.25);
/// let trace = plimsoll_monitor::step_trace("toy", &[Record::new(1.8e9, Event::Step(step))]);
/// assert!(trace.contains(r#""dur":250000.0"#));
/// ```
pub fn step_trace(title: &str, records: &[Record]) -> String {
    let times = records.iter().filter(|record| record.time.is_finite());
    let begin = times.map(|record| record.time - times_of(&record.event).total()).fold(f64::INFINITY, f64::min);
    let mut events = vec![
        about("process_name", STEPS, title),
        about("thread_name", STEPS, "steps"),
        about("thread_name", EVENTS, "events"),
    ];
    for record in records.iter().filter(|record| record.time.is_finite()) {
        let end = (record.time - begin) * MICROSECONDS;
        match &record.event {
            Event::Step(step) => add_step(&mut events, step, end),
            Event::Ended { times, .. } => add_slices(&mut events, ("end", json!({})), times, end),
            event => {
                let mut args = json!(event);
                let name = args["event"].take().as_str().unwrap_or("event").replace('_', " ");
                events.push(json!({
                    "ph": "i", "s": "t", "pid": PROCESS, "tid": EVENTS, "name": name, "ts": end, "args": args
                }));
            }
        }
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": { "title": title } }).to_string()
}

fn times_of(event: &Event) -> TimeShares {
    match event {
        Event::Step(StepEvent { times, .. }) | Event::Ended { times, .. } => *times,
        _ => TimeShares::default(),
    }
}

fn about(what: &str, track: u32, name: &str) -> Value {
    json!({ "ph": "M", "pid": PROCESS, "tid": track, "name": what, "args": { "name": name } })
}

fn add_step(events: &mut Vec<Value>, step: &StepEvent, end: f64) {
    let args = json!({
        "loss": step.loss, "micro_batches": step.micro_batches, "frames": step.frames, "padding": step.padding,
        "reads": step.reads, "shape": step.shape,
    });
    add_slices(events, (&format!("step {}", step.step), args), &step.times, end);
    let counter = |name: &str, value: Value| json!({ "ph": "C", "pid": PROCESS, "name": name, "ts": end, "args": { name: value } });
    if step.peak_bytes.0 > 0 {
        events.push(counter("peak memory in bytes", json!(step.peak_bytes.0)));
    }
    if step.loss.is_finite() {
        events.push(counter("loss", json!(step.loss)));
    }
}

/// Adds a slice that ends at `end`, and in it a slice for each owner of its time.
fn add_slices(events: &mut Vec<Value>, (name, args): (&str, Value), times: &TimeShares, end: f64) {
    let mut start = end - times.total() * MICROSECONDS;
    let slice = |name: &str, start: f64, seconds: f64, args: Value| {
        let duration = seconds * MICROSECONDS;
        json!({ "ph": "X", "pid": PROCESS, "tid": STEPS, "name": name, "ts": start, "dur": duration, "args": args })
    };
    events.push(slice(name, start, times.total(), args));
    for (owner, seconds) in times.iter() {
        events.push(slice(owner.label(), start, seconds, json!({ "owner": owner.name() })));
        start += seconds * MICROSECONDS;
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::TimeOwner;

    use super::*;

    #[test]
    fn slices_add_up_to_the_times_of_the_record() {
        let records: Vec<Record> = (1..=9)
            .map(|index| {
                let mut step = StepEvent { step: index, loss: 1.0, ..StepEvent::default() };
                step.times.add(TimeOwner::Data, 0.125 * index as f64);
                step.times.add(TimeOwner::Compute, 0.5);
                Record::new(1.8e9 + 4.0 * index as f64, Event::Step(step))
            })
            .chain([Record::new(f64::NAN, Event::Unknown), Record::new(1.9e9, Event::Unknown)])
            .collect();
        let trace: Value = serde_json::from_str(&step_trace("toy", &records)).unwrap();
        let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
        let sum = |name: &str| -> f64 {
            let of_owner = slices.clone().filter(|slice| slice["args"]["owner"] == name);
            of_owner.map(|slice| slice["dur"].as_f64().unwrap()).sum()
        };
        assert!((sum("data") - 0.125 * 45.0 * 1e6).abs() < 1e-3 && (sum("compute") - 4.5e6).abs() < 1e-3);
        let steps = slices.clone().filter(|slice| slice["name"].as_str().unwrap().starts_with("step "));
        assert_eq!(steps.count(), 9);
        assert!(slices.clone().all(|slice| slice["ts"].as_f64().unwrap() >= 0.0));
    }
}
