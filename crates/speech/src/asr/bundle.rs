//! What belongs to a recogniser besides its weights: sizes, features, letters.

use std::path::{Path, PathBuf};

use plimsoll_data::{CharTokenizer, FeatureError, LogMelConfig};
use plimsoll_tape::ParametersError;
use plimsoll_train::{CheckpointError, WeightsError};
use serde::{Deserialize, Serialize};

use super::RecogniserConfig;

/// All that it takes to use a model's weights, in one file of its folder, `model.json`.
///
/// The folder is that of a run, with its checkpoints, or that of an exported model, with one file of weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// The kind of model: `asr`.
    pub kind: String,
    /// Its sizes.
    pub recogniser: RecogniserConfig,
    /// Its features.
    pub features: LogMelConfig,
    /// Its letters.
    pub tokenizer: CharTokenizer,
}

/// Why a run's model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// There is no run in the folder.
    #[error("{} holds no trained model: it has no model.json", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// The file cannot be written or read.
    #[error("cannot access {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{} does not describe a recogniser of this version", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The run has no usable checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The weights of an exported model cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The checkpoint is that of another model.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// The features cannot be computed.
    #[error(transparent)]
    Features(#[from] FeatureError),
}

impl Bundle {
    /// The kind of model that this version writes.
    pub const KIND: &str = "asr";

    /// The file in a folder.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join("model.json")
    }

    /// The folder of a run's checkpoints.
    pub fn checkpoints(folder: &Path) -> PathBuf {
        folder.join("checkpoints")
    }

    /// The weights in an exported model's folder.
    pub fn weights(folder: &Path) -> PathBuf {
        folder.join("model.safetensors")
    }

    /// Writes it into a folder.
    pub fn write(&self, folder: &Path) -> Result<(), BundleError> {
        let path = Self::path(folder);
        let text = serde_json::to_string_pretty(self).expect("a bundle is plain data");
        std::fs::write(&path, text).map_err(|source| BundleError::Io { path, source })
    }

    /// Reads that of a folder.
    pub fn read(folder: &Path) -> Result<Self, BundleError> {
        let path = Self::path(folder);
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => BundleError::NoRun { folder: folder.into() },
            _ => BundleError::Io { path: path.clone(), source },
        })?;
        serde_json::from_str(&text).map_err(|source| BundleError::Format { path, source })
    }
}
