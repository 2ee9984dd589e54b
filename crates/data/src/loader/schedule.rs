//! Computes the order of batches of a run, from any position on.

use std::sync::Arc;

use plimsoll_core::{Grid, Key, Position};
use rayon::prelude::*;

use super::config::{Mode, Shard};
use crate::batching::{BatchingConfig, Epoch, SampleMeta, ordered_batches};

/// All inputs that decide the order of batches: the lengths of the samples, but no audio.
pub(super) struct Schedule {
    pub(super) metas: Vec<SampleMeta>,
    pub(super) batching: BatchingConfig,
    pub(super) grid: Grid,
    pub(super) mode: Mode,
    pub(super) seed: Key,
    pub(super) shard: Shard,
}

/// Job of a loader thread: one batch to load.
pub(super) struct Job {
    /// Indices of the samples of the batch in the data set.
    pub(super) samples: Vec<usize>,
    /// Position of the run after this batch, where the next batch begins.
    pub(super) next: Position,
    /// Key for the augmentation of the epoch; `None` without augmentation.
    pub(super) augment: Option<Key>,
}

impl Schedule {
    /// Counts the batches of epoch number `epoch`, on all threads.
    pub(super) fn batches_in_epoch(&self, epoch: u64) -> u64 {
        let epoch = self.shuffled(epoch);
        let windows = epoch.as_ref().map_or(1, Epoch::windows);
        (0..windows).into_par_iter().map(|window| self.window(epoch.as_ref(), window).len() as u64).sum()
    }

    /// Shuffles epoch number `epoch`; `None` for an evaluation, which keeps the order of the data set.
    fn shuffled(&self, epoch: u64) -> Option<Epoch> {
        match self.mode {
            Mode::Train { .. } => Some(self.batching.epoch(&self.metas, &self.grid, self.seed, epoch)),
            Mode::Evaluate => None,
        }
    }

    fn window(&self, epoch: Option<&Epoch>, window: usize) -> Vec<Vec<usize>> {
        let in_order = || ordered_batches(&self.metas, &(0..self.metas.len()).collect::<Vec<_>>(), self.batching.size);
        epoch.map_or_else(in_order, |epoch| epoch.batches(&self.metas, window))
    }

    /// Returns all batches of the run from a position on. An empty data set has no batches: its epochs would never
    /// yield a batch and never end.
    pub(super) fn jobs(self: Arc<Self>, from: Position) -> impl Iterator<Item = Job> + Send + 'static {
        let epochs = match self.mode {
            Mode::Evaluate => 1,
            Mode::Train { epochs } => epochs.unwrap_or(u64::MAX),
        };
        let epochs = if self.metas.is_empty() { 0 } else { epochs };
        (from.epoch..epochs).flat_map(move |epoch| {
            let from = if epoch == from.epoch { from } else { Position::epoch_start(epoch) };
            self.clone().jobs_of_epoch(from)
        })
    }

    /// Returns the batches of one epoch from a position on. Earlier windows are skipped without making their batches.
    fn jobs_of_epoch(self: Arc<Self>, from: Position) -> impl Iterator<Item = Job> + Send + 'static {
        let epoch = self.shuffled(from.epoch);
        let augment = epoch.is_some().then(|| self.seed.with("augment").at(from.epoch));
        let windows = epoch.as_ref().map_or(1, Epoch::windows) as u64;
        let shard = self.shard;
        // Old checkpoints have positions that only count batches. Those are searched from the start of the epoch.
        let has_only_count = from.window == 0 && from.within == 0;
        let mut before = from.batch - from.within.min(from.batch);
        if has_only_count {
            before = 0;
        }
        let jobs = (from.window..windows).flat_map(move |window| {
            let batches = self.window(epoch.as_ref(), window as usize);
            let (first, last) = (before, batches.len() as u64);
            before += last;
            let job = move |(samples, within): (Vec<usize>, u64)| {
                let here = Position { epoch: from.epoch, batch: first + within, window, within };
                let next = match (within == last, window + 1 == windows) {
                    (false, _) => here,
                    (true, false) => Position { window: window + 1, within: 0, ..here },
                    (true, true) => Position::epoch_start(from.epoch + 1),
                };
                Job { samples: shard.select(samples), next, augment }
            };
            batches.into_iter().zip(1..).map(job)
        });
        let done = if has_only_count { from.batch } else { from.within };
        jobs.skip(done.try_into().unwrap_or(usize::MAX))
    }
}
