//! Configuration of a loader.

use std::num::NonZeroUsize;

use plimsoll_core::Grid;

use crate::batching::BatchingConfig;

/// Purpose of the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Training: samples are shuffled anew in each epoch, and augmented.
    Train {
        /// Number of epochs; `None` for no end.
        epochs: Option<u64>,
    },
    /// Evaluation: one pass in the order of the data set, without augmentation.
    Evaluate,
}

/// Configuration of a loader: how batches are made and loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct LoaderConfig {
    /// Settings of batching, which decide which utterances make a batch.
    pub batching: BatchingConfig,
    /// Grid of lengths that batches are padded to. `None` computes it from the lengths of the data set. Give one grid
    /// to the loaders of training and validation, so that both have the same shapes.
    pub grid: Option<Grid>,
    /// Number of threads. Each thread loads a whole batch, so threads beyond `prefetch` are idle. `None` starts with
    /// one thread, and adds another whenever the caller had to wait.
    pub workers: Option<NonZeroUsize>,
    /// Largest share of the data set that may fail to load in one epoch, from 0 to 1. One more failure ends loading
    /// with an error. In a small data set one utterance may always fail, unless the share is 0.
    pub unreadable_share: f64,
    /// Number of batches that are loaded ahead. Together with the batch that the caller works on, these are all batches
    /// in memory. `None` means two for each thread; when every core already loads and the caller still waits, up to 16.
    pub prefetch: Option<NonZeroUsize>,
    /// Purpose of the batches: training or evaluation.
    pub mode: Mode,
    /// Share of every batch that is loaded, for one of several replicas.
    pub shard: Shard,
}

/// Share of one replica in every batch: every `ranks`-th utterance. The default is the whole batch.
///
/// All replicas get an equal number of batches. Of a batch with fewer utterances than replicas, some replicas get an
/// empty batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Rank of this replica, from 0.
    pub rank: usize,
    /// Number of replicas that share every batch.
    pub ranks: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { rank: 0, ranks: 1 }
    }
}

impl Shard {
    /// Returns the samples of a batch that belong to this replica.
    pub(super) fn select(self, samples: Vec<usize>) -> Vec<usize> {
        match self.ranks {
            0 | 1 => samples,
            ranks => samples.into_iter().skip(self.rank).step_by(ranks).collect(),
        }
    }
}
