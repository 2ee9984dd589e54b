//! Loaders of training and validation batches.

use std::num::NonZeroUsize;

use plimsoll_core::{BatchSource, DeliveredBatch, Grid, HostBatch, Key, Position, Skipped, SourceError};
use plimsoll_data::{LoadError, Loader, LoaderConfig, Mode, Shard};

use super::PreparedData;
use crate::mapping;
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};

impl PreparedData {
    /// Starts loading training batches, from `position` on; `shard` is the part of each batch for one replica.
    pub(crate) fn training_source(&self, plan: &RunPlan, position: Position, shard: Shard) -> Source<'static> {
        let config = loader_config(plan, &self.grid, Mode::Train { epochs: None }, shard);
        let key = Key::new(plan.seed).with("data");
        Source { loader: Loader::start(self.training.clone(), &config, key, position), reporter: None }
    }

    /// Starts loading all validation batches once; `shard` is the part for one replica. Utterances that cannot be read
    /// are reported as warnings.
    pub(crate) fn validation_source<'a>(&self, plan: &RunPlan, shard: Shard, reporter: &'a dyn Reporter) -> Source<'a> {
        let config = loader_config(plan, &self.grid, Mode::Evaluate, shard);
        let key = Key::new(plan.seed);
        Source {
            loader: Loader::start(self.validation.clone(), &config, key, Position::default()),
            reporter: Some(reporter),
        }
    }
}

/// A loader of batches for training or validation. Its error about too many unreadable files names the key that permits
/// more unreadable files.
pub(crate) struct Source<'a> {
    loader: Loader,
    /// Receiver of a warning for each skipped utterance of a validation; `None` in training, where the trainer records
    /// skipped utterances.
    reporter: Option<&'a dyn Reporter>,
}

impl BatchSource for Source<'_> {
    type Batch = HostBatch;

    fn next_batch(&mut self) -> Option<Result<DeliveredBatch<HostBatch>, SourceError>> {
        let next = self.loader.next()?;
        if let (Some(reporter), Ok(delivered)) = (self.reporter, &next) {
            for Skipped { name, reason } in &delivered.skipped {
                reporter.line(Level::Warning, &format!("`{name}` left out of the validation: {reason}"));
            }
        }
        Some(next.map_err(|error| match error {
            LoadError::TooManyUnreadable { .. } => SourceError(format!("{error} (data.unusable_share allows more)")),
            error => error.into(),
        }))
    }

    fn batches_in_epoch(&self) -> u64 {
        self.loader.batches_in_epoch()
    }

    fn recycle(&mut self, batch: HostBatch) {
        self.loader.recycle(batch);
    }
}

/// Returns the settings of a loader for `plan`; `shard` is the part of each batch for one replica.
fn loader_config(plan: &RunPlan, grid: &Grid, mode: Mode, shard: Shard) -> LoaderConfig {
    let data = &plan.config.data;
    let number = |number: Option<u32>| number.and_then(|number| NonZeroUsize::new(number as usize));
    LoaderConfig {
        batching: mapping::batching(&plan.config),
        grid: Some(grid.clone()),
        workers: number(data.num_workers),
        prefetch: number(data.prefetch_buffer_size),
        unreadable_share: data.unusable_share,
        mode,
        shard,
    }
}
