//! A run: batches, steps, validations and checkpoints, until a limit or a stop signal.

mod checkpoints;
mod pace;
mod skipped;
mod training_loop;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use plimsoll_core::{BatchSource, Bytes, CollectiveError, EndKind, Measure, SourceError, error_chain};
use plimsoll_tape::Task;

use crate::planned::PlannedPeaks;
use crate::{
    CheckpointError, CheckpointStore, Event, InferenceRunner, Observer, PlateauConfig, RunState, StepError, Trainer,
};
use training_loop::TrainingLoop;

/// Limits of a run; the run ends when it reaches the first of them. Default: no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Largest number of steps. `None`: no limit.
    pub steps: Option<u64>,
    /// Largest number of epochs. `None`: no limit.
    pub epochs: Option<u64>,
    /// Largest time spent in steps and in waiting for batches. `None`: no limit.
    pub time: Option<Duration>,
    /// Number of validations in a row without improvement that ends the run. `None`: no limit.
    pub stale: Option<u32>,
}

/// Options of a run: when it ends, validates and saves.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Limits that end the run.
    pub limits: Limits,
    /// Number of steps between validations. `None`: a validation after each epoch.
    pub validate_every: Option<u64>,
    /// Number of steps between checkpoints.
    pub save_every: u64,
    /// Number of steps in a row without a finite loss and gradient before the run fails. In fp16 the number is four
    /// times as large, because the loss scale adapts by overflows.
    pub failures_max: u32,
    /// Reduction of the learning rate when validations no longer improve. `None`: no reduction.
    pub plateau: Option<PlateauConfig>,
    /// Planned peak memory of a step, for each largest batch shape. A step that exceeds its plan by 3 % is reported as
    /// [`Event::Drift`].
    pub planned: PlannedPeaks,
    /// Largest number of utterances that validation computes at once, as planned. A validation that runs out of memory
    /// lowers the number.
    pub validation_batch: usize,
    /// Largest share of a run that a limit of time ends which the warm-up of its learning rate may take, from 0 to 1. It
    /// holds as soon as the run knows how many steps it has time for. 1 leaves the warm-up as the schedule has it.
    pub warmup_share: f64,
    /// Return of unused memory to the driver of a GPU. `None`: never between steps that fit.
    pub cleanup: Option<Cleanup>,
}

/// When a run returns unused memory to the driver of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// Number of steps after which the run may return memory.
    pub every: u64,
    /// Reserved memory above which it does; 0 for always.
    pub above: Bytes,
}

impl Limits {
    /// Returns the ending of a run at `state`, if it has reached a limit.
    pub fn reached(&self, state: &RunState) -> Option<Ending> {
        if self.stale.is_some_and(|stale| state.stale >= stale) {
            return Some(Ending::Stale);
        }
        let is_reached = self.steps.is_some_and(|steps| state.step >= steps)
            || self.time.and(state.timed_steps).is_some_and(|steps| state.step >= steps)
            || self.epochs.is_some_and(|epochs| state.position.epoch >= epochs)
            || self.time.is_some_and(|time| state.train_seconds >= time.as_secs_f64());
        is_reached.then_some(Ending::Complete)
    }
}

impl RunOptions {
    /// Makes the options of a run within `limits`: validation after each epoch, a checkpoint every 200 steps, 10
    /// failures in a row, no plateau, no plan, and whole batches in validation.
    pub fn new(limits: Limits) -> Self {
        let planned = PlannedPeaks::default();
        Self {
            limits,
            validate_every: None,
            save_every: 200,
            failures_max: 10,
            plateau: None,
            planned,
            validation_batch: usize::MAX,
            warmup_share: 1.0,
            cleanup: None,
        }
    }
}

/// Result of a validation.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Score by which the best model is chosen; lower is better.
    pub value: f64,
    /// Decides between equal scores; lower is better. 0 if there is nothing else to compare.
    pub tie: f64,
    /// All measures that the validation computed, for the report.
    pub all: Vec<Measure>,
}

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The limit on steps, epochs or time was reached, or the data ended.
    Complete,
    /// The limit on validations in a row without improvement was reached.
    Stale,
    /// The stop flag of the run became true.
    Stopped,
}

impl From<Ending> for EndKind {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Complete => Self::Complete,
            Ending::Stale => Self::Stale,
            Ending::Stopped => Self::Stopped,
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Reason for the end of the run.
    pub ending: Ending,
    /// State of the run at its end.
    pub state: RunState,
    /// Result of the last validation in this call of [`Run::train`]; `None` if there was none.
    pub last_score: Option<Score>,
}

/// Reason why a run ended with an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A step failed, or too many steps in a row failed.
    #[error("the run stopped after {failures} failed {} in a row", if *failures == 1 { "step" } else { "steps" })]
    Step {
        /// Number of failed steps in a row.
        failures: u32,
        /// Error of the last failed step.
        source: StepError,
    },
    /// The final checkpoint cannot be written.
    #[error("cannot write a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    /// The run ended without a single step, or there was nothing to learn for a whole epoch: every batch was skipped.
    #[error("the run took no step in its last {batches} batches: all were skipped")]
    NoStep {
        /// Number of skipped batches.
        batches: u64,
        /// Reason why the last batch was skipped.
        source: StepError,
    },
    /// Another replica is gone.
    #[error("cannot continue without the other replicas")]
    Replica(#[from] CollectiveError),
    /// The validation failed, with the message of its error.
    #[error("cannot validate: {0}")]
    Validation(String),
}

/// Function that computes the score of a model after a number of steps, on the device of the given runner. The error is
/// a message.
pub type Validate<'a, T> = dyn FnMut(&T, u64, &mut InferenceRunner<'_>) -> Result<Score, String> + 'a;

/// Builder of a run: a trainer, its batches, and the store of its checkpoints. By default it starts at step 0 and
/// reports no events.
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
    /// Makes a run of `trainer` on the batches of `source`, with its checkpoints in `store`.
    pub fn new(
        trainer: &'a mut Trainer<T>,
        source: &'a mut dyn BatchSource<Batch = T::Batch>,
        store: &'a CheckpointStore,
        options: &'a RunOptions,
    ) -> Self {
        Self { trainer, source, store, options, state: RunState::default(), stop: None, observer: None }
    }

    /// Sets the state from which the run continues. The caller must have restored the trainer and the source to that
    /// state.
    #[must_use]
    pub fn with_state(self, state: RunState) -> Self {
        Self { state, ..self }
    }

    /// Sets a flag that ends the run before the next micro-batch, of a step or of a validation, when it becomes true. A step
    /// that was begun changes nothing then.
    #[must_use]
    pub fn with_stop(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Sets the observer to which the run reports its events.
    #[must_use]
    pub fn with_observer(self, observer: &'a mut dyn Observer) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Trains until a limit is reached, the source ends or the stop flag is set, and writes a checkpoint at the end.
    ///
    /// # Errors
    /// If the source fails, a step cannot be computed, every batch is skipped, the validation fails, another replica is
    /// gone, or the last checkpoint cannot be written. Before it returns, it reports the error as [`Event::Ended`] and
    /// tries to save the steps since the last checkpoint. A run that continues from there uses each batch once.
    pub fn train(self, validate: &mut Validate<'_, T>) -> Result<Outcome, TrainError> {
        let Self { trainer, source, store, options, state, stop, observer } = self;
        let (never, mut silent) = (AtomicBool::new(false), |_: &Event| {});
        let observer: &mut dyn Observer = match observer {
            Some(observer) => observer,
            None => &mut silent,
        };
        let mut training_loop = TrainingLoop::new(trainer, store, options, observer, state);
        let mut last_score = None;
        let ending = training_loop.run(source, validate, stop.unwrap_or(&never), &mut last_score);
        match ending.and_then(|ending| training_loop.finish().map(|()| ending)) {
            Ok(ending) => {
                training_loop.report_end(ending.into(), String::new());
                Ok(Outcome { ending, state: training_loop.state, last_score })
            }
            Err(error) => {
                // The error first: what follows from it may fail, too.
                training_loop.report_end(EndKind::Failed, error_chain(&error));
                // The steps since the last checkpoint are worth keeping.
                training_loop.save_after_error(&error);
                Err(error)
            }
        }
    }
}
