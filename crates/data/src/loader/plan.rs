//! Which batches come, in which order.

use std::sync::Arc;

use plimsoll_core::{Grid, Key, Position};

use super::config::{Mode, Shard};
use crate::batching::{BatchingConfig, Epoch, SampleMeta, ordered_batches};

/// Which batches come, in which order.
pub(super) struct Plan {
    pub(super) metas: Vec<SampleMeta>,
    pub(super) batching: BatchingConfig,
    pub(super) grid: Grid,
    pub(super) mode: Mode,
    pub(super) seed: Key,
    pub(super) shard: Shard,
}

/// One batch to load.
pub(super) struct Job {
    pub(super) samples: Vec<usize>,
    /// Where the batch after it is.
    pub(super) next: Position,
    /// The epoch's branch of randomness, when samples are augmented.
    pub(super) augment: Option<Key>,
}

impl Plan {
    /// The batches of an epoch, window by window.
    pub(super) fn dealt(&self, epoch: u64) -> impl Iterator<Item = Vec<Vec<usize>>> + use<'_> {
        let dealt = match self.mode {
            Mode::Train { .. } => Some(Epoch::shuffle(&self.metas, &self.batching, &self.grid, self.seed, epoch)),
            Mode::Evaluate => None,
        };
        let windows = dealt.as_ref().map_or(1, Epoch::windows);
        (0..windows).map(move |window| self.window(dealt.as_ref(), window))
    }

    fn window(&self, dealt: Option<&Epoch>, window: usize) -> Vec<Vec<usize>> {
        let in_order = || ordered_batches(&self.metas, &(0..self.metas.len()).collect::<Vec<_>>(), self.batching.size);
        dealt.map_or_else(in_order, |dealt| dealt.batches(&self.metas, window))
    }

    /// All batches from a position on; none of an empty data set, which would be searched for ever.
    pub(super) fn jobs(self: Arc<Self>, from: Position) -> impl Iterator<Item = Job> + Send + 'static {
        let epochs = match self.mode {
            Mode::Evaluate => 1,
            Mode::Train { epochs } => epochs.unwrap_or(u64::MAX),
        };
        let epochs = if self.metas.is_empty() { 0 } else { epochs };
        (from.epoch..epochs).flat_map(move |epoch| {
            let from = if epoch == from.epoch { from } else { Position::of_epoch(epoch) };
            self.clone().jobs_of(from)
        })
    }

    /// The batches of an epoch from a position on. Windows before it are not dealt.
    fn jobs_of(self: Arc<Self>, from: Position) -> impl Iterator<Item = Job> + Send + 'static {
        let is_training = matches!(self.mode, Mode::Train { .. });
        let dealt = is_training.then(|| Epoch::shuffle(&self.metas, &self.batching, &self.grid, self.seed, from.epoch));
        let augment = is_training.then(|| self.seed.with("augment").at(from.epoch));
        let windows = dealt.as_ref().map_or(1, Epoch::windows) as u64;
        // A position that only counts batches is looked for from the start.
        let shard = self.shard;
        let counted = from.window == 0 && from.within == 0;
        let mut before = from.batch - from.within.min(from.batch);
        if counted {
            before = 0;
        }
        let jobs = (from.window..windows).flat_map(move |window| {
            let batches = self.window(dealt.as_ref(), window as usize);
            let (first, last) = (before, batches.len() as u64);
            before += last;
            let job = move |(samples, within): (Vec<usize>, u64)| {
                let here = Position { epoch: from.epoch, batch: first + within, window, within };
                let next = match (within == last, window + 1 == windows) {
                    (false, _) => here,
                    (true, false) => Position { window: window + 1, within: 0, ..here },
                    (true, true) => Position::of_epoch(from.epoch + 1),
                };
                Job { samples: shard.of(samples), next, augment }
            };
            batches.into_iter().zip(1..).map(job)
        });
        let done = if counted { from.batch } else { from.within };
        jobs.skip(done.try_into().unwrap_or(usize::MAX))
    }
}
