//! Where batches come from, as a trainer sees it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::HostBatch;

/// Where a run stands in its data: what it takes to go on exactly there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// Epochs completed.
    pub epoch: u64,
    /// Batches of this epoch completed.
    pub batch: u64,
    /// Where a source deals its batches by windows: windows of this epoch completed.
    #[serde(default)]
    pub window: u64,
    /// Batches of this window completed.
    #[serde(default)]
    pub within: u64,
}

impl Position {
    /// The start of an epoch.
    pub fn of_epoch(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }
}

/// A batch as a source delivers it.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// The batch.
    pub batch: HostBatch,
    /// Where the run stands once this batch is done.
    pub position: Position,
    /// Samples that should have been in it and could not be read.
    pub skipped: Vec<Skipped>,
    /// How long the caller waited for it.
    pub waited: Duration,
}

/// A sample that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Its name in the manifest.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A source of batches: the loader, or a list in a test.
///
/// The trainer asks through it, so it knows no files and no threads.
pub trait BatchSource {
    /// The next batch in the run's order; `None` at the end of the last epoch, and from then on.
    fn next_batch(&mut self) -> Option<Result<Delivered, SourceError>>;

    /// Batches in an epoch.
    fn batches_in_epoch(&self) -> u64;

    /// Takes back a batch that is done with, for a source that can use its memory again.
    fn give_back(&mut self, batch: HostBatch) {
        drop(batch);
    }
}

/// Why a source cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the next batch: {0}")]
pub struct SourceError(pub String);
