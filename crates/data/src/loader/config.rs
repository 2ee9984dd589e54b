//! How batches are made and loaded.

use std::num::NonZeroUsize;

use plimsoll_core::Grid;

use crate::batching::BatchingConfig;

/// What the batches are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Shuffled anew each epoch, and augmented.
    Train {
        /// How many epochs; for ever when left out.
        epochs: Option<u64>,
    },
    /// Once, in the order of the data set, as recorded.
    Evaluate,
}

/// How batches are made and loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// How utterances are put into batches.
    pub batching: BatchingConfig,
    /// What batches are padded to; found from the lengths of the data set without it. Training and validation share one.
    pub grid: Option<Grid>,
    /// Threads that load; each works at a batch of its own, so more than `prefetch` of them have nothing to do. Without it
    /// there is one, and another whenever the caller had to wait.
    pub workers: Option<NonZeroUsize>,
    /// Largest share of the data set that may fail to load in an epoch before loading ends with an error. Of a small one,
    /// where this is less than an utterance, one may all the same, unless the share is zero.
    pub unreadable_share: f64,
    /// Batches loaded ahead; with the one that the caller waits for, they are all that is ever in memory. Without it, two
    /// for each thread, and more when all cores load and the caller still had to wait, 16 at most.
    pub prefetch: Option<NonZeroUsize>,
    /// What the batches are for.
    pub mode: Mode,
    /// The part of every batch that is loaded, where several replicas share the work.
    pub shard: Shard,
}

/// A replica's part of every batch: each has a batch wherever the others have one, though it may be of nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of the replica, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, ranks: 1 }
    }
}

impl Shard {
    pub(super) fn of(self, samples: Vec<usize>) -> Vec<usize> {
        match self.ranks {
            0 | 1 => samples,
            ranks => samples.into_iter().skip(self.rank).step_by(ranks).collect(),
        }
    }
}
