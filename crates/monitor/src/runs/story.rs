//! The story of a run: its `metrics.jsonl`, without the steps that were taken anew.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use plimsoll_core::{Bytes, Measure, MeasureUnit};
use serde_json::Value;

use super::course::Validation;

/// One record, as far as a course needs it.
pub(super) enum Told {
    Step { epoch: u64, loss: Option<f64>, frames: u64, step_seconds: f64, wait_seconds: f64, peak: Bytes },
    Validated { validation: Validation, peak: Bytes },
    Skipped,
    OutOfMemory,
    Lowered,
    LeftOut { samples: u64 },
}

/// What was told of a run, each part with its step.
///
/// A step whose number is not above the last one's was taken anew: the run went on from a checkpoint before it. All
/// that was told from there on is then taken back, also steps that the run has not come to again.
#[derive(Default)]
pub(super) struct Story {
    told: Vec<(u64, Told)>,
    /// What comes before a step and belongs to it, with the step that it names.
    before: Vec<(Option<u64>, Told)>,
    last_step: u64,
}

impl Story {
    /// Adds a record; one of a kind that is not known here is passed over.
    pub(super) fn tell(&mut self, record: &Value) {
        let step = record["step"].as_u64();
        match (told(record), step) {
            (Some(told @ Told::Step { .. }), Some(step)) => {
                self.take_back(step);
                self.before.retain(|(named, _)| named.is_none_or(|named| named <= step));
                self.told.extend(self.before.drain(..).map(|(_, told)| (step, told)));
                self.told.push((step, told));
                self.last_step = step;
            }
            (Some(told @ (Told::Validated { .. } | Told::Lowered)), Some(step)) => {
                self.take_back(step.saturating_add(1));
                self.told.push((step, told));
            }
            (Some(told @ (Told::Skipped | Told::OutOfMemory | Told::LeftOut { .. })), step) => {
                self.before.push((step, told));
            }
            _ => {}
        }
    }

    /// All of it, in order.
    pub(super) fn whole(self) -> Vec<(u64, Told)> {
        let next = self.last_step.saturating_add(1);
        self.told.into_iter().chain(self.before.into_iter().map(|(_, told)| (next, told))).collect()
    }

    /// Forgets what was told of the step `from` and later ones, where any was.
    fn take_back(&mut self, from: u64) {
        if from <= self.last_step {
            self.told.retain(|(at, _)| *at < from);
            self.last_step = from.saturating_sub(1);
        }
    }
}

/// Reads the record of a run. A line that was cut off when the run was killed is left out; so is any other that is no
/// JSON, which is said.
pub(super) fn each_record(path: &Path, notes: &mut Vec<String>, mut tell: impl FnMut(&Value)) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return notes.push(format!("metrics.jsonl cannot be read: {error}")),
    };
    let (mut broken, mut last_is_broken) = (0, false);
    for line in BufReader::new(file).split(b'\n') {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                notes.push(format!("metrics.jsonl cannot be read to its end: {error}"));
                break;
            }
        };
        let record = serde_json::from_slice(&line);
        last_is_broken = record.is_err();
        broken += u64::from(last_is_broken);
        if let Ok(record) = record {
            tell(&record);
        }
    }
    match broken - u64::from(last_is_broken) {
        0 => {}
        broken => notes.push(format!("lines of metrics.jsonl that are no JSON and do not count: {broken}")),
    }
}

fn told(record: &Value) -> Option<Told> {
    let count = |key: &str| record[key].as_u64().unwrap_or_default();
    let seconds = |key: &str| record[key].as_f64().unwrap_or_default();
    let peak = Bytes(count("peak_bytes"));
    Some(match record["event"].as_str()? {
        "step" => Told::Step {
            epoch: record["position"]["epoch"].as_u64().unwrap_or_default(),
            loss: record["loss"].as_f64(),
            frames: count("frames"),
            step_seconds: seconds("step_seconds"),
            wait_seconds: seconds("wait_seconds"),
            peak,
        },
        "validated" => {
            let scores = record["scores"].as_array().into_iter().flatten().filter_map(measure).collect();
            let best = record["best"].as_bool().unwrap_or_default();
            Told::Validated {
                validation: Validation { step: count("step"), epoch: count("epoch"), scores, best },
                peak,
            }
        }
        "skipped" => Told::Skipped,
        "out_of_memory" => Told::OutOfMemory,
        "lowered" => Told::Lowered,
        "left_out" => Told::LeftOut { samples: record["samples"].as_array().map_or(0, |all| all.len() as u64) },
        _ => return None,
    })
}

/// A score. One that is no number is written as null, and is left out.
fn measure(score: &Value) -> Option<Measure> {
    let name = score["name"].as_str()?.to_string();
    let label = score["label"].as_str().unwrap_or(&name).to_string();
    let unit = if score["unit"] == "share" { MeasureUnit::Share } else { MeasureUnit::Number };
    Some(Measure { name: name.into(), label: label.into(), value: score["value"].as_f64()?, unit })
}
