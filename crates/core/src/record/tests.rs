//! Tests that events are read as they were written, by this program and by older and newer programs.

use proptest::prelude::*;

use super::*;
use crate::{Bytes, Measure, OutOfMemory, PoolMemory, PoolPages, Position, Skipped, Stage};

/// Generates numbers whose decimal text is exact, as serde_json reads other numbers only to the last bit but one.
fn number() -> impl Strategy<Value = f64> {
    any::<i32>().prop_map(|n| f64::from(n) / 64.0)
}

fn text() -> impl Strategy<Value = String> {
    "\\PC{0,8}"
}

fn bytes() -> impl Strategy<Value = Bytes> {
    (0u64..1 << 50).prop_map(Bytes)
}

fn stage() -> impl Strategy<Value = Stage> {
    use Stage::{Accumulate, Backward, Checkpoint, Forward, Norm, Update, Validation};
    prop::sample::select(vec![Forward, Backward, Accumulate, Norm, Update, Validation, Checkpoint])
}

fn times() -> impl Strategy<Value = TimeShares> {
    any::<[u16; 3]>().prop_map(|seconds| {
        let mut times = TimeShares::default();
        let owners = [TimeOwner::Data, TimeOwner::Compute, TimeOwner::Unknown];
        // Quarters of a second are exact in text.
        owners.into_iter().zip(seconds).for_each(|(owner, quarters)| times.add(owner, f64::from(quarters) / 4.0));
        times
    })
}

fn step_event() -> impl Strategy<Value = Event> {
    let place = (any::<[u32; 4]>()).prop_map(|[epoch, batch, window, within]| Position {
        epoch: epoch.into(),
        batch: batch.into(),
        window: window.into(),
        within: within.into(),
    });
    let numbers = [(); 8].map(|()| number());
    let parts = prop::collection::btree_map(text().prop_map(Into::into), number(), 0..3);
    let ledger = prop::collection::vec(any::<[u32; 3]>().prop_map(MicroBatch::from), 0..3);
    (any::<u64>(), place, numbers, parts, ledger, any::<[u32; 5]>(), bytes(), times()).prop_map(
        |(step, position, numbers, parts, ledger, counts, peak_bytes, times)| {
            let [loss, norm, rate, loss_scale, safety_seconds, padding, step_seconds, wait_seconds] = numbers;
            let [micro_batches, attempts, reads, truncated, frames] = counts;
            Event::Step(StepEvent {
                step,
                position,
                loss,
                parts,
                norm,
                rate,
                micro_batches: micro_batches as usize,
                ledger,
                attempts: attempts as usize,
                loss_scale,
                reads,
                launches: (reads > 7).then_some(frames),
                uploads: (reads > 7).then_some(truncated),
                safety_seconds,
                truncated: truncated as usize,
                frames: frames.into(),
                shape: (frames > 7).then(|| crate::BatchShape::samples(truncated)),
                padding,
                step_seconds,
                wait_seconds,
                peak_bytes,
                times,
            })
        },
    )
}

fn validated() -> impl Strategy<Value = Event> {
    let measure = (text(), text(), number(), any::<bool>()).prop_map(|(name, label, value, is_share)| Measure {
        name: name.into(),
        label: label.into(),
        value,
        unit: if is_share { crate::MeasureUnit::Share } else { crate::MeasureUnit::Number },
    });
    (any::<[u64; 2]>(), prop::collection::vec(measure, 0..3), number(), any::<bool>(), bytes()).prop_map(
        |([step, epoch], scores, seconds, best, peak_bytes)| Event::Validated {
            step,
            epoch,
            scores,
            seconds,
            best,
            peak_bytes,
        },
    )
}

fn end() -> impl Strategy<Value = EndKind> {
    use EndKind::{Complete, Failed, Stale, Stopped, Unknown};
    prop::sample::select(vec![Complete, Stale, Stopped, Failed, Unknown])
}

/// Generates every event that has fields. [`Event::Unknown`] has no fields and has a test of its own.
fn event() -> impl Strategy<Value = Event> {
    let skipped = (text(), text()).prop_map(|(name, reason)| Skipped { name, reason });
    let step = any::<u64>;
    prop_oneof![
        step_event(),
        validated(),
        (step(), text()).prop_map(|(step, reason)| Event::Skipped { step, reason }),
        prop::collection::vec(skipped, 0..3).prop_map(|samples| Event::LeftOut { samples }),
        (step(), stage(), text(), any::<usize>()).prop_map(|(step, stage, reason, limit)| {
            Event::OutOfMemory { step, failure: OutOfMemory { stage, reason }, limit }
        }),
        (step(), prop::collection::vec(text(), 0..3)).prop_map(|(step, names)| Event::Unfit { step, names }),
        (step(), stage(), bytes(), bytes()).prop_map(|(step, phase, planned_bytes, peak_bytes)| {
            Event::Drift { step, phase, planned_bytes, peak_bytes }
        }),
        (step(), [bytes(), bytes()], prop::collection::vec((bytes(), bytes(), any::<[u64; 2]>()), 0..3)).prop_map(
            |(step, [reserved_bytes, in_use_bytes], pages)| {
                let pages = pages.into_iter().map(|(page_bytes, largest_bytes, [count, most])| PoolPages {
                    page_bytes,
                    count,
                    most,
                    largest_bytes,
                });
                Event::Pools { step, memory: PoolMemory { reserved_bytes, in_use_bytes, pages: pages.collect() } }
            }
        ),
        (step(), number()).prop_map(|(step, factor)| Event::RateLowered { step, factor }),
        (step(), step(), number()).prop_map(|(step, steps, seconds)| Event::Paced { step, steps, seconds }),
        (step(), text()).prop_map(|(step, path)| Event::Saved { step, path: path.into() }),
        (step(), text()).prop_map(|(step, reason)| Event::NotSaved { step, reason }),
        (step(), end(), text(), times()).prop_map(|(step, end, reason, times)| Event::Ended {
            step,
            end,
            reason,
            times
        }),
        (step(), any::<usize>(), bytes()).prop_map(|(step, limit, peak_bytes)| Event::Lowered {
            step,
            limit,
            peak_bytes
        }),
    ]
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(time in number(), event in event()) {
        let record = Record::new(time, event);
        let line = serde_json::to_string(&record).unwrap();
        prop_assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record, "{}", line);
    }
}

fn read(line: &str) -> Record {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn lines_of_the_first_program_are_read() {
    let step = r#"{"event":"step","frames":3200,"loss":8.25,"norm":1.5,"padding":0.125,"peak_bytes":1048576,"pieces":2,
        "position":{"batch":3,"epoch":1},"rate":0.001,"step":13,"step_seconds":0.5,"time":1700000000.25,
        "wait_seconds":0.0}"#;
    let expected = StepEvent {
        step: 13,
        position: Position { epoch: 1, batch: 3, ..Position::default() },
        loss: 8.25,
        norm: 1.5,
        rate: 0.001,
        micro_batches: 2,
        frames: 3200,
        padding: 0.125,
        step_seconds: 0.5,
        peak_bytes: Bytes(1 << 20),
        ..StepEvent::default()
    };
    assert_eq!(read(step), Record { schema_version: 0, time: 1_700_000_000.25, event: Event::Step(expected) });
    let lowered = r#"{"event":"lowered","limit":4,"peak_bytes":1024,"step":13,"time":1700000000.25}"#;
    assert_eq!(read(lowered).event, Event::Lowered { step: 13, limit: 4, peak_bytes: Bytes(1024) });
    let validated = r#"{"best":true,"epoch":1,"event":"validated","peak_bytes":0,"scores":[["cer",0.25],["wer",0.5]],
        "seconds":2.5,"step":13,"time":1700000000.25}"#;
    let Event::Validated { scores, .. } = read(validated).event else { panic!("a validation") };
    assert_eq!(scores, [Measure::share("cer", "cer", 0.25), Measure::share("wer", "wer", 0.5)]);
}

#[test]
fn lines_before_the_schema_had_a_version_are_read() {
    let step = r#"{"begun":3,"cut":1,"cuts":[[0,4,0],[4,2,4294967295]],"event":"step","frames":3200,"loss":8.25,
        "norm":1.5,"padding":0.125,"parts":{"mel":8.0,"stop":0.25},"peak_bytes":1048576,"pieces":2,
        "position":{"batch":3,"epoch":1,"window":0,"within":0},"rate":0.001,"reads":1,"safety_seconds":0.125,"step":13,
        "step_seconds":0.5,"time":1700000000.25,"wait_seconds":0.25}"#;
    let expected = StepEvent {
        step: 13,
        position: Position { epoch: 1, batch: 3, ..Position::default() },
        loss: 8.25,
        parts: [("mel".into(), 8.0), ("stop".into(), 0.25)].into(),
        norm: 1.5,
        rate: 0.001,
        micro_batches: 2,
        ledger: vec![[0, 4, 0].into(), [4, 2, MicroBatch::LEFT_OUT].into()],
        attempts: 3,
        reads: 1,
        safety_seconds: 0.125,
        truncated: 1,
        frames: 3200,
        padding: 0.125,
        step_seconds: 0.5,
        wait_seconds: 0.25,
        peak_bytes: Bytes(1 << 20),
        ..StepEvent::default()
    };
    assert_eq!(read(step).event, Event::Step(expected));
    let failure =
        r#"{"event":"out_of_memory","failure":{"reason":"r","stage":"forward"},"limit":4,"step":13,"time":1.5}"#;
    let expected = OutOfMemory { stage: Stage::Forward, reason: "r".into() };
    assert_eq!(read(failure).event, Event::OutOfMemory { step: 13, failure: expected, limit: 4 });
    let lowered = r#"{"event":"rate_lowered","factor":0.5,"step":13,"time":1700000000.25}"#;
    assert_eq!(read(lowered).event, Event::RateLowered { step: 13, factor: 0.5 });
}

#[test]
fn written_names_of_a_step_stay() {
    let parts = [("mel".into(), 1.0)].into();
    let step = StepEvent { step: 1, parts, loss_scale: 2.0, ledger: vec![[0, 1, 0].into()], ..StepEvent::default() };
    let line = serde_json::to_value(Record::new(0.5, Event::Step(step))).unwrap();
    let names: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = "begun cut cuts event frames loss loss_scale norm padding parts peak_bytes pieces position rate reads \
                    safety_seconds schema_version step step_seconds time wait_seconds";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn records_of_newer_programs_are_read() {
    let unknown = read(r#"{"schema_version":7,"event":"merged","with":[{"a":1}],"time":2.5}"#);
    assert_eq!(unknown, Record { schema_version: 7, time: 2.5, event: Event::Unknown });
    let step = read(r#"{"event":"step","step":3,"loss":0.5,"position":{"epoch":1,"shard":2},"of_the_future":[1]}"#);
    let Event::Step(StepEvent { step, loss, position, .. }) = step.event else { panic!("a step") };
    assert_eq!((step, loss, position.epoch), (3, 0.5, 1));
    let score = r#"{"name":"mos","value":4.5,"unit":"stars","range":[1,5]}"#;
    let Event::Validated { scores, .. } =
        read(&format!(r#"{{"event":"validated","step":1,"scores":[{score}]}}"#)).event
    else {
        panic!("a validation")
    };
    assert_eq!((scores[0].to_string(), &*scores[0].label), ("mos 4.5000".into(), ""));
}

#[test]
fn not_a_number_is_null_and_read_as_nan() {
    let nan = StepEvent { loss: f64::NAN, parts: [("mel".into(), f64::INFINITY)].into(), ..StepEvent::default() };
    let line = serde_json::to_string(&Record::new(0.0, Event::Step(nan))).unwrap();
    assert!(line.contains(r#""loss":null,"parts":{"mel":null}"#), "{line}");
    let Event::Step(StepEvent { loss, parts, .. }) = read(&line).event else { panic!("a step") };
    assert!(loss.is_nan() && parts["mel"].is_nan());
    let validated = r#"{"event":"validated","step":1,"scores":[{"name":"a","label":"a","value":null,"unit":"share"}]}"#;
    let Event::Validated { scores, .. } = read(validated).event else { panic!("a validation") };
    assert!(scores[0].value.is_nan());
}

#[cfg(unix)]
#[test]
fn a_path_that_is_not_unicode_is_recorded() {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(b"runs/\xff").into();
    let line = serde_json::to_string(&Record::new(0.0, Event::Saved { step: 1, path })).unwrap();
    assert!(line.contains("runs/\u{fffd}"), "{line}");
}
