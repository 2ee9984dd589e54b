//! Batches of a run that led to no step.

use super::TrainError;
use crate::StepError;

/// Smallest number of batches in a row without anything to learn that ends a run.
const IDLE_MIN: u64 = 10;

/// Batches that led to no step since the run was started or resumed.
#[derive(Debug, Default)]
pub(super) struct SkippedBatches {
    /// Number of batches in a row without anything to learn.
    idle: u64,
    /// Number of all skipped batches.
    count: u64,
    /// Whether there was a step.
    has_step: bool,
    /// Error of the last skipped batch.
    last: Option<StepError>,
}

impl SkippedBatches {
    /// Records a step.
    pub(super) fn record_step(&mut self) {
        (self.idle, self.has_step, self.last) = (0, true, None);
    }

    /// Records a batch that was skipped because of `error`.
    pub(super) fn record(&mut self, error: StepError) {
        self.idle = if matches!(error, StepError::Nothing { .. }) { self.idle + 1 } else { 0 };
        self.count += 1;
        self.last = Some(error);
    }

    /// Returns an error if there was nothing to learn for a whole epoch of `epoch` batches: further epochs would find
    /// nothing, either.
    pub(super) fn error_without_data(&mut self, epoch: impl FnOnce() -> u64) -> Option<TrainError> {
        let batches = self.idle;
        let source = self.last.take_if(|_| batches >= IDLE_MIN && batches >= epoch())?;
        Some(TrainError::NoStep { batches, source })
    }

    /// Returns the error of a run that ends with skipped batches and without a step. Such a run has learned nothing.
    pub(super) fn error_without_step(&mut self) -> Option<TrainError> {
        let source = self.last.take().filter(|_| !self.has_step)?;
        Some(TrainError::NoStep { batches: self.count, source })
    }
}
