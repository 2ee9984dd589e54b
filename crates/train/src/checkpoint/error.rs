//! Errors of checkpoints.

use std::path::PathBuf;

use super::{FORMAT, OLDEST_FORMAT};
use crate::weights::WeightsError;

/// Reason why the checkpoint that [`CheckpointStore::best`](super::CheckpointStore::best) returns may not be the best.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotBest {
    /// The checkpoint with the best score cannot be read, and the newest that can is used.
    #[error(
        "the checkpoint with the best score, of step {best}, cannot be read; using that of step {used}, the newest"
    )]
    Unreadable {
        /// Step of the checkpoint with the best score.
        best: u64,
        /// Step of the checkpoint that is used.
        used: u64,
        /// Why the best checkpoint cannot be read.
        source: CheckpointError,
    },
    /// A newer checkpoint cannot be read, so the scores after `known` are not known.
    #[error("a newer checkpoint cannot be read; using the best checkpoint up to step {known}")]
    NewerUnreadable {
        /// Step up to which the scores are known.
        known: u64,
        /// Why the newer checkpoint cannot be read.
        source: CheckpointError,
    },
}

/// Failure to write or read a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// Reading or writing a file or folder failed.
    #[error("cannot access {}", path.display())]
    Io {
        /// File or folder that cannot be read or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The folder has no checkpoint that can be used.
    #[error("no checkpoint in {}", path.display())]
    None {
        /// Folder that was searched.
        path: PathBuf,
    },
    /// A file is missing, or its content differs from what was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// File that is missing or damaged.
        path: PathBuf,
        /// Kind of damage to the file.
        reason: String,
    },
    /// The checkpoint has a format version that cannot be read.
    #[error("{} has format {found}, and this version reads {OLDEST_FORMAT} to {FORMAT}", path.display())]
    Version {
        /// File with the unknown format version.
        path: PathBuf,
        /// Format version of the file.
        found: u32,
    },
    /// The checkpoint is intact, but belongs to another run or to another step than its folder.
    #[error("{} does not belong there: {reason}", path.display())]
    Foreign {
        /// Folder of the checkpoint.
        path: PathBuf,
        /// Origin of the checkpoint, in words.
        reason: String,
    },
    /// The checkpoints of a folder have different tensors, so they cannot be averaged.
    #[error("`{name}` is not in all of the checkpoints in {}, or its shape differs", path.display())]
    Unlike {
        /// Folder of the checkpoints.
        path: PathBuf,
        /// Name of a tensor in which the checkpoints differ.
        name: String,
    },
    /// The device cannot return the weights or the state of the optimizer.
    #[error("the device cannot return the state of the run: {reason}")]
    Device {
        /// Message of the device.
        reason: String,
    },
    /// A file of tensors cannot be made or read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}
