//! The record of a run as a trace file for `ui.perfetto.dev` and `chrome://tracing`.

use plimsoll_core::{Event, Record, StepEvent, TimeShares};
use serde_json::{Value, json};

/// Id of the only process in the trace.
const PROCESS: u32 = 1;
/// Track of the steps.
const STEPS: u32 = 1;
/// Track of what happened besides.
const EVENTS: u32 = 2;

/// Longest time between two steps that rounding explains. A longer one is a break: the run was stopped and resumed.
const BREAK: f64 = 1.0;

/// Writes the steps of `records` as a trace in JSON: a slice for each step, divided by the owners of its time, counters of
/// memory and loss, and marks for other events.
///
/// The record holds how long each owner had the time of a step, and not when. So the owners of a step follow each other in
/// the order of [`TimeOwner::ALL`](plimsoll_core::TimeOwner::ALL), and the slices of an owner add up to its time in the
/// record. Slices begin and end at whole microseconds, so that a viewer nests them without rounding.
///
/// ```
/// use plimsoll_core::{Event, Record, StepEvent, TimeOwner};
///
/// let mut step = StepEvent { step: 1, ..StepEvent::default() };
/// step.times.add(TimeOwner::Compute, 0.25);
/// let trace = plimsoll_monitor::step_trace("toy", &[Record::new(1.8e9, Event::Step(step))]);
/// assert!(trace.contains(r#""dur":250000"#));
/// ```
pub fn step_trace(title: &str, records: &[Record]) -> String {
    let records: Vec<&Record> = records.iter().filter(|record| record.time.is_finite()).collect();
    let begin =
        records.iter().map(|record| record.time - times_of(&record.event).total()).fold(f64::INFINITY, f64::min);
    let mut trace = Trace {
        events: vec![
            about("process_name", STEPS, title),
            about("thread_name", STEPS, "steps"),
            about("thread_name", EVENTS, "events"),
        ],
        end: 0.0,
    };
    for record in records {
        let now = record.time - begin;
        match &record.event {
            Event::Step(step) => trace.add_step(step, now),
            Event::Ended { times, .. } => trace.add_slices("end", json!({}), times, now),
            event => trace.add_mark(event, now),
        }
    }
    json!({ "traceEvents": trace.events, "displayTimeUnit": "ms", "otherData": { "title": title } }).to_string()
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

/// Rounds seconds to whole microseconds.
fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

/// A trace that is being written.
struct Trace {
    events: Vec<Value>,
    /// End of the last slice, in seconds from the begin of the trace.
    end: f64,
}

impl Trace {
    fn add_step(&mut self, step: &StepEvent, now: f64) {
        let args = json!({
            "loss": step.loss, "micro_batches": step.micro_batches, "frames": step.frames, "padding": step.padding,
            "reads": step.reads, "launches": step.launches, "uploads": step.uploads, "shape": step.shape,
        });
        self.add_slices(&format!("step {}", step.step), args, &step.times, now);
        let end = micros(self.end);
        let counter = |name: &str, value: Value| json!({ "ph": "C", "pid": PROCESS, "name": name, "ts": end, "args": { name: value } });
        if step.peak_bytes.0 > 0 {
            self.events.push(counter("peak memory in bytes", json!(step.peak_bytes.0)));
        }
        if step.loss.is_finite() {
            self.events.push(counter("loss", json!(step.loss)));
        }
    }

    /// Adds a slice, and in it a slice for each owner of its time. Each lap of a run begins where the one before ended, so the
    /// slice does too, unless the run paused. `now` is the time of the record, which is rounded.
    fn add_slices(&mut self, name: &str, args: Value, times: &TimeShares, now: f64) {
        let recorded = now - times.total();
        let mut start = if (recorded - self.end).abs() < BREAK { self.end } else { recorded.max(self.end) };
        let slice = |name: &str, start: f64, seconds: f64, args: Value| {
            let (start, end) = (micros(start), micros(start + seconds));
            json!({
                "ph": "X", "pid": PROCESS, "tid": STEPS, "name": name, "ts": start, "dur": end - start, "args": args
            })
        };
        let whole = times.iter().fold(start, |end, (_, seconds)| end + seconds) - start;
        self.events.push(slice(name, start, whole, args));
        for (owner, seconds) in times.iter() {
            self.events.push(slice(owner.label(), start, seconds, json!({ "owner": owner.name() })));
            start += seconds;
        }
        self.end = start;
    }

    fn add_mark(&mut self, event: &Event, now: f64) {
        let mut args = json!(event);
        let name = args["event"].take().as_str().unwrap_or("event").replace('_', " ");
        self.events.push(json!({
            "ph": "i", "s": "t", "pid": PROCESS, "tid": EVENTS, "name": name, "ts": micros(now), "args": args
        }));
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
                // Rounded, and later than the end of the step: it was written afterwards.
                let sum = 0.125 * (index * (index + 1) / 2) as f64 + 0.5 * index as f64;
                Record::new(1.8e9 + sum + 0.001 * (index % 3) as f64, Event::Step(step))
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
        // Slices of a track nest: each begins at the end of the one before, or inside its step.
        let span = |slice: &Value| {
            let (start, length) = (slice["ts"].as_i64().unwrap(), slice["dur"].as_i64().unwrap());
            (start, start + length)
        };
        let (mut step, mut last) = ((0, 0), 0);
        for slice in slices {
            let (start, end) = span(slice);
            if slice["args"]["owner"].is_string() {
                assert!(start == last && end <= step.1, "{slice}");
                last = end;
            } else {
                assert!(start == step.1 && last == step.1, "{slice}");
                (step, last) = ((start, end), start);
            }
        }
        assert_eq!(last, step.1);
    }
}
