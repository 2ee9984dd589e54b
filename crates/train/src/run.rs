//! The run: batches in, steps, validation, checkpoints, until a limit or somebody says stop.

mod voyage;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use plimsoll_core::{BatchShape, BatchSource, Bytes, CollectiveError, Measure, SourceError};
use plimsoll_tape::Task;

use crate::{Careful, CheckpointError, CheckpointStore, Observer, PlateauConfig, RunState, StepError, Trainer};
use voyage::Voyage;

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
pub type Validate<'a, T> = dyn FnMut(&T, u64, &mut Careful<'_>) -> Result<Score, String> + 'a;

/// Trains until a limit is reached or `stop` is set; the step in progress is always finished, and a checkpoint written.
#[expect(clippy::too_many_arguments, reason = "each is another part of a run, and none belongs into another")]
pub fn run<T: Task>(
    trainer: &mut Trainer<T>,
    state: RunState,
    source: &mut dyn BatchSource,
    validate: &mut Validate<'_, T>,
    store: &CheckpointStore,
    options: &RunOptions,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Outcome, TrainError> {
    let mut voyage = Voyage::new(trainer, store, options, observer, state);
    let mut last_score = None;
    let ending = match voyage.sail(source, validate, stop, &mut last_score) {
        Ok(ending) => ending,
        Err(error) => {
            // What was learned since the last checkpoint is worth keeping, whatever ended the run.
            voyage.rescue(&error);
            return Err(error);
        }
    };
    voyage.end()?;
    Ok(Outcome { ending, state: voyage.state, last_score })
}
