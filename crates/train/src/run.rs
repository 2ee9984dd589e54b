//! The run: batches in, steps, validation, checkpoints, until a limit or somebody says stop.

mod training_loop;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use plimsoll_core::{BatchShape, BatchSource, Bytes, CollectiveError, Measure, SourceError};
use plimsoll_tape::Task;

use crate::{
    CheckpointError, CheckpointStore, Event, InferenceRunner, Observer, PlateauConfig, RunState, StepError, Trainer,
};
use training_loop::TrainingLoop;

/// When a run ends: at whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// After so many steps.
    pub steps: Option<u64>,
    /// After so many epochs.
    pub epochs: Option<u64>,
    /// After so long in steps.
    pub time: Option<Duration>,
    /// After so many validations in a row that found nothing better.
    pub stale: Option<u32>,
}

/// How a run is driven.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// When it ends.
    pub limits: Limits,
    /// Steps between validations; after each epoch where `None`.
    pub validate_every: Option<u64>,
    /// Steps between checkpoints.
    pub save_every: u64,
    /// Steps in a row that may fail to be finite before the run stops.
    pub failures_max: u32,
    /// How the rate is lowered when validations no longer get better, where it is.
    pub plateau: Option<PlateauConfig>,
    /// What was planned: the most that a step of batches of at most this shape takes. A step that takes more is told.
    pub planned: Vec<(BatchShape, Bytes)>,
}

impl RunOptions {
    /// A run within `limits`, validated after each epoch and saved every 200 steps.
    pub fn new(limits: Limits) -> Self {
        let planned = Vec::new();
        Self { limits, validate_every: None, save_every: 200, failures_max: 10, plateau: None, planned }
    }
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
    /// Validations no longer found anything better.
    Stale,
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
    #[error("the run stopped after {failures} failed {} in a row", if *failures == 1 { "step" } else { "steps" })]
    Step {
        /// How many failed.
        failures: u32,
        /// The last failure.
        source: StepError,
    },
    /// A checkpoint cannot be written.
    #[error("cannot write a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    /// Another replica is gone.
    #[error("this replica cannot go on alone")]
    Replica(#[from] CollectiveError),
    /// The model cannot be validated.
    #[error("cannot validate: {0}")]
    Validation(String),
}

/// Whoever judges a model in training, after so many steps, computing on the device with care.
pub type Validate<'a, T> = dyn FnMut(&T, u64, &mut InferenceRunner<'_>) -> Result<Score, String> + 'a;

/// A run to be: a trainer, its batches, and where checkpoints go. By default it begins at step 0 and reports nothing.
pub struct Run<'a, T: Task> {
    trainer: &'a mut Trainer<T>,
    source: &'a mut dyn BatchSource<Batch = T::Batch>,
    store: &'a CheckpointStore,
    options: &'a RunOptions,
    state: RunState,
    stop: Option<&'a AtomicBool>,
    observer: Option<&'a mut dyn Observer>,
}

impl<'a, T: Task> Run<'a, T> {
    /// A new run of `trainer` on the batches of `source`, with its checkpoints in `store`.
    pub fn new(
        trainer: &'a mut Trainer<T>,
        source: &'a mut dyn BatchSource<Batch = T::Batch>,
        store: &'a CheckpointStore,
        options: &'a RunOptions,
    ) -> Self {
        Self { trainer, source, store, options, state: RunState::default(), stop: None, observer: None }
    }

    /// The same run, continued from `state`. The trainer and the source must stand there already.
    #[must_use]
    pub fn with_state(self, state: RunState) -> Self {
        Self { state, ..self }
    }

    /// The same run, which ends after the step in progress once `stop` is set.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// The same run, which reports its events to `observer`.
    #[must_use]
    pub fn with_observer(self, observer: &'a mut dyn Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Trains until a limit is reached, the source ends or the run is stopped, and writes a checkpoint at the end.
    ///
    /// # Errors
    /// Where the source fails, a step cannot be computed, or a checkpoint cannot be written.
    pub fn train(self, validate: &mut Validate<'_, T>) -> Result<Outcome, TrainError> {
        let Self { trainer, source, store, options, state, stop, observer } = self;
        let (never, mut nobody) = (AtomicBool::new(false), |_: &Event| {});
        let observer: &mut dyn Observer = match observer {
            Some(observer) => observer,
            None => &mut nobody,
        };
        let mut training_loop = TrainingLoop::new(trainer, store, options, observer, state);
        let mut last_score = None;
        let ending = match training_loop.run(source, validate, stop.unwrap_or(&never), &mut last_score) {
            Ok(ending) => ending,
            Err(error) => {
                // What was learned since the last checkpoint is worth keeping, whatever ended the run.
                training_loop.save_after_error(&error);
                return Err(error);
            }
        };
        training_loop.finish()?;
        Ok(Outcome { ending, state: training_loop.state, last_score })
    }
}
