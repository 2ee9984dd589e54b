//! What differs between the tasks of a run: the model, how it is judged, and what is said of it.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_core::{HostBatch, Key, Measure};
use plimsoll_monitor::Example;
use plimsoll_tape::Task;
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use crate::error::Failure;

/// A kind of model in training. There are two: recognition and synthesis.
pub(super) trait TrainingTask {
    /// The model.
    type Model: Task<Batch = HostBatch>;

    /// A new one, its first values drawn from `key`.
    fn model(&self, device: &Device, key: Key) -> Self::Model;

    /// Writes into the run's folder what belongs to the model besides its weights.
    fn describe(&self, run: &RunContext<'_>) -> Result<(), Failure>;

    /// Whether what was written there is what would be written now: the same sizes, features and tokens.
    fn is_same(&self, run: &RunContext<'_>) -> Result<bool, Failure>;

    /// Judges a model in training, after `step`.
    fn validate(
        &self,
        model: &Self::Model,
        step: u64,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String>;

    /// Judges the best model at the end.
    fn finish(
        &self,
        model: Self::Model,
        careful: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Verdict, Failure>;

    /// What to do next with the run in `folder`, in whole lines.
    fn next_steps(&self, folder: &Path) -> String;
}

/// What was found at the end of a run.
#[derive(Debug)]
pub(super) struct Verdict {
    /// What was measured.
    pub(super) scores: Vec<Measure>,
    /// On how many held-out utterances.
    pub(super) held_out: usize,
    /// A few of them.
    pub(super) examples: Vec<Example>,
}
