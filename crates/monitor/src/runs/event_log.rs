//! Events of a run, without the events of steps that were repeated after a resume.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use plimsoll_core::{Bytes, Event, Measure, Record, SCHEMA_VERSION, StepEvent};
use serde::Serialize;

/// Result of a validation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Step after which the model was validated.
    pub step: u64,
    /// Number of epochs completed before the validation.
    pub epoch: u64,
    /// Scores of the validation. A score that is NaN or infinite is left out.
    pub scores: Vec<Measure>,
    /// Whether this validation was the best so far.
    pub best: bool,
}

/// Event of a run, reduced to the facts that the history of the run needs.
pub(super) enum Entry {
    Step {
        epoch: u64,
        loss: Option<f64>,
        frames: u64,
        step_seconds: f64,
        wait_seconds: f64,
        peak: Bytes,
    },
    Validated {
        validation: Validation,
        peak: Bytes,
    },
    /// Kind of an event of which only the number of occurrences matters, and the number of occurrences to add.
    Count(Counted, u64),
}

/// Kind of event of which the history of a run holds only the number of occurrences.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    SkippedStep,
    OutOfMemory,
    LoweredLimit,
    LoweredRate,
    LeftOutSample,
    UnfitUtterance,
    Drift,
    UnsavedCheckpoint,
}

/// Events of a run, each with its step.
///
/// A step whose number is not above the number of the last step is a repetition: the run was resumed from a checkpoint
/// before it. All events from that step on are then removed, including events of later steps that the run has not
/// reached again.
#[derive(Default)]
pub(super) struct EventLog {
    entries: Vec<(u64, Entry)>,
    /// Events that the record holds before the step to which they belong, such as a skipped step. They wait here for
    /// the next step. Each has the step number that the event itself names, if any.
    pending: Vec<(Option<u64>, Entry)>,
    last_step: u64,
}

impl EventLog {
    /// Adds an event. An event of unknown kind is skipped.
    pub(super) fn add(&mut self, event: Event) {
        let named = event.step();
        match event {
            Event::Step(event) => self.add_step(event),
            Event::Validated { step, epoch, scores, best, peak_bytes, .. } => {
                let validation = Validation { step, epoch, scores: numbers_of(scores), best };
                self.add_after(step, Entry::Validated { validation, peak: peak_bytes });
            }
            Event::RateLowered { step, .. } => self.add_after(step, Entry::Count(Counted::LoweredRate, 1)),
            Event::Lowered { step, .. } => self.add_after(step, Entry::Count(Counted::LoweredLimit, 1)),
            Event::Drift { step, .. } => self.add_after(step, Entry::Count(Counted::Drift, 1)),
            // A checkpoint is written beside training, so its step may lie behind the last one.
            Event::NotSaved { step, .. } => self.entries.push((step, Entry::Count(Counted::UnsavedCheckpoint, 1))),
            Event::Skipped { .. } => self.pending.push((named, Entry::Count(Counted::SkippedStep, 1))),
            Event::OutOfMemory { .. } => self.pending.push((named, Entry::Count(Counted::OutOfMemory, 1))),
            Event::LeftOut { samples } => {
                self.pending.push((named, Entry::Count(Counted::LeftOutSample, samples.len() as u64)));
            }
            Event::Unfit { names, .. } => {
                self.pending.push((named, Entry::Count(Counted::UnfitUtterance, names.len() as u64)));
            }
            _ => {}
        }
    }

    fn add_step(&mut self, event: StepEvent) {
        let StepEvent { step, position, loss, frames, step_seconds, wait_seconds, peak_bytes, .. } = event;
        self.remove_from(step);
        self.pending.retain(|(named, _)| named.is_none_or(|named| named <= step));
        self.entries.extend(self.pending.drain(..).map(|(_, entry)| (step, entry)));
        let loss = Some(loss).filter(|loss| loss.is_finite());
        let entry = Entry::Step { epoch: position.epoch, loss, frames, step_seconds, wait_seconds, peak: peak_bytes };
        self.entries.push((step, entry));
        self.last_step = step;
    }

    /// Adds an entry that happened after step `step` and before the next step. Removes the entries of later steps,
    /// because the run was resumed before them.
    fn add_after(&mut self, step: u64, entry: Entry) {
        self.remove_from(step.saturating_add(1));
        self.entries.push((step, entry));
    }

    /// Returns all entries with their steps, in order.
    pub(super) fn into_entries(self) -> Vec<(u64, Entry)> {
        let next = self.last_step.saturating_add(1);
        self.entries.into_iter().chain(self.pending.into_iter().map(|(_, entry)| (next, entry))).collect()
    }

    /// Removes the entries of step `from` and later steps, if there are such steps.
    fn remove_from(&mut self, from: u64) {
        if from <= self.last_step {
            self.entries.retain(|(at, _)| *at < from);
            self.last_step = from.saturating_sub(1);
        }
    }
}

/// Returns the finite scores. The first versions of the program wrote no label; the name of the score replaces it.
fn numbers_of(scores: Vec<Measure>) -> Vec<Measure> {
    let numbers = scores.into_iter().filter(|score| score.value.is_finite());
    numbers
        .map(|score| if score.label.is_empty() { Measure { label: score.name.clone(), ..score } } else { score })
        .collect()
}

/// Reads the record of a run and calls `visit` with every line. Lines that are not records are skipped and noted,
/// except for an incomplete last line.
pub(super) fn each_record(path: &Path, notes: &mut Vec<String>, mut visit: impl FnMut(Record)) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return notes.push(format!("cannot read metrics.jsonl: {error}")),
    };
    let (mut broken, mut last_is_broken, mut newest) = (0, false, SCHEMA_VERSION);
    for line in BufReader::new(file).split(b'\n') {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                notes.push(format!("cannot read metrics.jsonl to its end: {error}"));
                break;
            }
        };
        let record: Result<Record, _> = serde_json::from_slice(&line);
        last_is_broken = record.is_err();
        broken += u64::from(last_is_broken);
        if let Ok(record) = record {
            newest = newest.max(record.schema_version);
            visit(record);
        }
    }
    match broken - u64::from(last_is_broken) {
        0 => {}
        broken => notes.push(format!("skipped lines of metrics.jsonl that are not records: {broken}")),
    }
    if newest > SCHEMA_VERSION {
        notes.push(format!(
            "metrics.jsonl has schema version {newest} and this program reads {SCHEMA_VERSION}: facts may be missing"
        ));
    }
}
