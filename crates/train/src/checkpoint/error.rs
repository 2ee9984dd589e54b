//! Errors of checkpoints.

use std::path::PathBuf;

use super::FORMAT;
use crate::weights::WeightsError;

/// Failure to write or read a checkpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// File system error.
    #[error("cannot access {}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// No checkpoint found.
    #[error("no checkpoint in {}", path.display())]
    None {
        /// Folder that was searched.
        path: PathBuf,
    },
    /// A file is missing, or its content differs from what was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// File.
        path: PathBuf,
        /// Kind of damage.
        reason: String,
    },
    /// The checkpoint has another format version.
    #[error("{} has format {found}, and this version reads {FORMAT}", path.display())]
    Version {
        /// File.
        path: PathBuf,
        /// Its format version.
        found: u32,
    },
    /// The checkpoints of a folder have different tensors.
    #[error("`{name}` is not in all of the checkpoints in {}, or its shape differs", path.display())]
    Unlike {
        /// Folder.
        path: PathBuf,
        /// Name of the tensor.
        name: String,
    },
    /// A tensor file cannot be made or read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}
