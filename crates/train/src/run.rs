//! The run: batches in, steps, validation, checkpoints, until a limit or somebody says stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::{BatchSource, Delivered, Measure, MemoryMeter, Position, SourceError};
use plimsoll_tape::{Task, collect};

use crate::{CheckpointError, CheckpointStore, Event, Observer, RunState, StepError, Trainer};

/// When a run ends: at whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// After so many steps.
    pub steps: Option<u64>,
    /// After so many epochs.
    pub epochs: Option<u64>,
    /// After so long in steps.
    pub time: Option<Duration>,
}

/// How a run is driven.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// When it ends.
    pub limits: Limits,
    /// Steps between validations; after each epoch where `None`.
    pub validate_every: Option<u64>,
    /// Steps between checkpoints.
    pub save_every: u64,
    /// Steps in a row that may fail to be finite before the run stops.
    pub failures_max: u32,
}

/// What a validation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// What the best model is chosen by: lower is better.
    pub value: f64,
    /// All that was measured.
    pub all: Vec<Measure>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It reached a limit.
    Complete,
    /// Somebody asked it to stop.
    Stopped,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why.
    pub ending: Ending,
    /// What it remembers.
    pub state: RunState,
    /// The last validation.
    pub last_score: Option<Score>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The data cannot go on.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A step failed for good.
    #[error("the run stopped after {failures} failed steps in a row")]
    Step {
        /// How many failed.
        failures: u32,
        /// The last failure.
        source: StepError,
    },
    /// A checkpoint cannot be written.
    #[error("cannot write a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    /// The model cannot be validated.
    #[error("cannot validate: {0}")]
    Validation(String),
}

/// A run in progress.
struct Voyage<'a, T> {
    trainer: &'a mut Trainer<T>,
    store: &'a CheckpointStore,
    meter: &'a dyn MemoryMeter,
    observer: &'a mut dyn Observer,
    state: RunState,
    failures: u32,
}

/// Trains until a limit is reached or `stop` is set; the step in progress is always finished, and a checkpoint written.
#[expect(clippy::too_many_arguments, reason = "each is another part of a run, and none belongs into another")]
pub fn run<T: Task>(
    trainer: &mut Trainer<T>,
    state: RunState,
    source: &mut dyn BatchSource,
    validate: &mut dyn FnMut(&T, u64) -> Result<Score, String>,
    store: &CheckpointStore,
    options: &RunOptions,
    meter: &dyn MemoryMeter,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome, TrainError> {
    let mut voyage = Voyage { trainer, store, meter, observer, state, failures: 0 };
    let mut last_score = None;
    let mut validated = voyage.state.step;
    let mut saved = voyage.state.step;
    let ending = loop {
        if stop.load(Ordering::Relaxed) {
            break Ending::Stopped;
        }
        if voyage.reached(&options.limits) {
            break Ending::Complete;
        }
        let Some(delivered) = source.next_batch() else { break Ending::Complete };
        let before = voyage.state.position;
        voyage.step(delivered?, options.failures_max)?;
        let new_epoch = voyage.state.position.epoch > before.epoch;
        let due = match options.validate_every {
            Some(every) => voyage.state.step >= validated + every,
            None => new_epoch,
        };
        if due {
            last_score = Some(voyage.validate(validate)?);
            validated = voyage.state.step;
        }
        let is_best = due && voyage.state.best_step == Some(voyage.state.step);
        if is_best || voyage.state.step >= saved + options.save_every {
            voyage.save()?;
            saved = voyage.state.step;
        }
    };
    if ending == Ending::Complete && (validated < voyage.state.step || last_score.is_none()) {
        last_score = Some(voyage.validate(validate)?);
        saved = u64::MAX;
    }
    if saved != voyage.state.step {
        voyage.save()?;
    }
    Ok(Outcome { ending, state: voyage.state, last_score })
}

impl<T: Task> Voyage<'_, T> {
    fn reached(&self, limits: &Limits) -> bool {
        limits.steps.is_some_and(|steps| self.state.step >= steps)
            || limits.epochs.is_some_and(|epochs| self.state.position.epoch >= epochs)
            || limits.time.is_some_and(|time| self.state.train_seconds >= time.as_secs_f64())
    }

    fn step(&mut self, delivered: Delivered, failures_max: u32) -> Result<(), TrainError> {
        let Delivered { batch, position, skipped, waited } = delivered;
        if !skipped.is_empty() {
            self.observer.observe(&Event::LeftOut { samples: skipped });
        }
        self.meter.reset_peak();
        let start = Instant::now();
        let result = self.trainer.step(&batch);
        let step_seconds = start.elapsed().as_secs_f64();
        self.state.position = position;
        self.state.train_seconds += step_seconds + waited.as_secs_f64();
        let report = match result {
            Ok(report) => report,
            Err(error) => return self.failed(error, failures_max),
        };
        self.failures = 0;
        self.state.step = report.step;
        let peak_bytes = self.meter.peak();
        if !report.left_out.is_empty() {
            self.left_out(report.left_out);
        }
        self.observer.observe(&Event::Step {
            step: report.step,
            position,
            loss: report.loss,
            parts: report.parts,
            norm: report.norm,
            rate: report.rate,
            pieces: report.pieces,
            cut: report.cut.len(),
            frames: batch.frame_lengths.iter().map(|&n| u64::from(n)).sum(),
            padding: batch.padding(),
            step_seconds,
            wait_seconds: waited.as_secs_f64(),
            peak_bytes,
        });
        let largest = batch.len().min(self.trainer.governor.limit());
        if self.trainer.governor.saw_peak(largest, peak_bytes) {
            let limit = self.trainer.governor.limit();
            self.observer.observe(&Event::Lowered { step: report.step, limit, peak_bytes });
        }
        self.state.limit = self.trainer.governor.limit();
        Ok(())
    }

    fn left_out(&mut self, names: Vec<String>) {
        let reason = "fewer frames than its text needs";
        let samples = names.into_iter().map(|name| plimsoll_core::Skipped { name, reason: reason.into() });
        self.observer.observe(&Event::LeftOut { samples: samples.collect() });
    }

    fn failed(&mut self, error: StepError, failures_max: u32) -> Result<(), TrainError> {
        self.failures += 1;
        if self.failures >= failures_max || matches!(error, StepError::Device { .. }) {
            return Err(TrainError::Step { failures: self.failures, source: error });
        }
        self.observer.observe(&Event::Skipped { step: self.state.step + 1, reason: error.to_string() });
        Ok(())
    }

    fn validate(&mut self, validate: &mut dyn FnMut(&T, u64) -> Result<Score, String>) -> Result<Score, TrainError> {
        self.meter.reset_peak();
        let start = Instant::now();
        let score = validate(&self.trainer.task, self.state.step).map_err(TrainError::Validation)?;
        let best = self.state.best.is_none_or(|best| score.value < best);
        if best {
            self.state.best = Some(score.value);
            self.state.best_step = Some(self.state.step);
        }
        let Position { epoch, .. } = self.state.position;
        let seconds = start.elapsed().as_secs_f64();
        let scores = score.all.clone();
        self.observer.observe(&Event::Validated {
            step: self.state.step,
            epoch,
            scores,
            seconds,
            best,
            peak_bytes: self.meter.peak(),
        });
        Ok(score)
    }

    fn save(&mut self) -> Result<(), TrainError> {
        let weights = collect(&self.trainer.task);
        let path = self.store.save(&self.state, &weights, &self.trainer.optimizer.state())?;
        self.observer.observe(&Event::Saved { step: self.state.step, path });
        Ok(())
    }
}
