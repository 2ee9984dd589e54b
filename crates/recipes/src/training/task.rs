//! The parts of a run that depend on the task: its model, metadata, validation and report.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_core::{HostBatch, HostSample, Key, Measure};
use plimsoll_monitor::Example;
use plimsoll_tape::Task;
use plimsoll_train::{InferenceRunner, Score};

use super::RunContext;
use crate::error::Failure;

/// Configuration of a model that can be trained.
pub(super) trait Trainable {
    /// Type of its training.
    type Training: TrainingTask + Sync;

    /// Returns the training of the model, with a tokenizer of `tokens` tokens: the vocabulary of the model can be wider.
    fn training(&self, tokens: usize) -> Self::Training;
}

/// Training of one kind of model: recognition, synthesis or vocoding.
pub(super) trait TrainingTask {
    /// Type of the model.
    type Model: Task<Batch = HostBatch>;

    /// Makes a new model on `device`, initialized from `key`.
    fn model(&self, device: &Device, key: Key) -> Self::Model;

    /// Writes the model metadata into the folder of the run: sizes, features, tokenizer.
    ///
    /// # Errors
    /// If the files cannot be written.
    fn write_metadata(&self, run: &RunContext<'_>) -> Result<(), Failure>;

    /// Validates a model in training, after `step`. The score decides which checkpoint is best; lower is better.
    ///
    /// # Errors
    /// A message, if the model or the device fails, or samples cannot be written.
    fn validate(
        &self,
        model: &Self::Model,
        step: u64,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<Score, String>;

    /// Evaluates the best model at the end of the run.
    ///
    /// # Errors
    /// If the model or the device fails.
    fn finish(
        &self,
        model: Self::Model,
        runner: &mut InferenceRunner<'_>,
        run: &RunContext<'_>,
    ) -> Result<FinalScores, Failure>;

    /// Returns the commands to try next with the run in `folder`, in whole lines.
    fn next_steps(&self, folder: &Path) -> String;
}

/// Evaluation of the best model at the end of a run.
#[derive(Debug)]
pub(super) struct FinalScores {
    /// Measures of the best model.
    pub(super) scores: Vec<Measure>,
    /// Number of held-out utterances that were evaluated.
    pub(super) held_out: usize,
    /// A few utterances with their true and recognized texts; only of a recognizer.
    pub(super) examples: Vec<Example>,
}

/// Loads up to `count` held-out utterances, evenly spread over their lengths, longest first. Skips utterances that
/// cannot be read; the loader of the validation reports them.
pub(super) fn held_out(run: &RunContext<'_>, count: usize) -> Vec<HostSample> {
    let all = run.prepared.validation.len();
    let step = all.div_ceil(count.max(1)).max(1);
    let load = |index| run.prepared.validation.load(index, None).ok();
    // Longest first: a listener hears more mistakes in a long utterance.
    (0..all).rev().step_by(step).filter_map(load).collect()
}
