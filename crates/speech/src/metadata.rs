//! What belongs to a model besides its weights: sizes, features, tokens; and the folder that holds them.

use std::path::{Path, PathBuf};

use plimsoll_audio::{FeatureError, LogMelConfig, VocoderError};
use plimsoll_tape::{NamedTensor, ParametersError};
use plimsoll_text::Tokenizer;
use plimsoll_train::{CheckpointError, CheckpointStore, WeightsError, read_weights};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The sizes of a kind of model.
pub trait ModelKind: Serialize + DeserializeOwned {
    /// The word for the kind, as it stands in files.
    const KIND: &'static str;
    /// What such a model is called.
    const NAME: &'static str;
}

/// All that it takes to use a model's weights, in one file of its folder, `model.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMetadata<M> {
    /// The kind of model.
    kind: String,
    /// Its sizes.
    #[serde(alias = "recogniser")]
    pub model: M,
    /// Its features.
    pub features: LogMelConfig,
    /// Its tokens.
    pub tokenizer: Tokenizer,
}

/// Why a run's model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// There is no run in the folder.
    #[error("{} holds no trained model: it has no model.json", folder.display())]
    NoModel {
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
    /// The file describes another kind of model.
    #[error("{} holds a model of the kind `{found}`, and {wanted} was expected", folder.display())]
    Kind {
        /// The folder.
        folder: PathBuf,
        /// The kind that is there.
        found: String,
        /// What was expected.
        wanted: &'static str,
    },
    /// The file is not what it should be.
    #[error("{} does not describe {wanted} of this version", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What was expected.
        wanted: &'static str,
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
    /// No sound can be made of the features.
    #[error(transparent)]
    Vocoder(#[from] VocoderError),
    /// The features cannot be computed.
    #[error(transparent)]
    Features(#[from] FeatureError),
}

/// A folder with a model: that of a run, with its checkpoints, or that of an exported model, with one file of weights.
#[derive(Clone, Copy, Debug)]
pub struct ModelFolder<'a>(pub &'a Path);

impl ModelFolder<'_> {
    /// The file that describes the model.
    pub fn metadata_file(self) -> PathBuf {
        self.0.join("model.json")
    }

    /// The folder of a run's checkpoints.
    pub fn checkpoints(self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// The weights of an exported model.
    pub fn exported_weights(self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// The voice that a synthesiser speaks in where no other is named.
    pub fn default_voice(self) -> PathBuf {
        self.0.join("voice.wav")
    }

    /// The word for the kind of model that is in it, such as `asr`.
    pub fn kind(self) -> Result<String, ModelError> {
        Ok(self.value()?["kind"].as_str().unwrap_or("unknown").into())
    }

    /// The weights of a run's best checkpoint, or those of an exported model, which has no checkpoints.
    pub fn weights(self) -> Result<Vec<NamedTensor>, ModelError> {
        let (checkpoints, exported_weights) = (self.checkpoints(), self.exported_weights());
        if !checkpoints.exists() && exported_weights.is_file() {
            return Ok(read_weights(&exported_weights)?);
        }
        Ok(CheckpointStore::new(checkpoints, 1).best()?.judged())
    }

    fn value(self) -> Result<Value, ModelError> {
        let path = self.metadata_file();
        let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => ModelError::NoModel { folder: self.0.into() },
            _ => ModelError::Io { path: path.clone(), source },
        })?;
        serde_json::from_str(&text).map_err(|source| ModelError::Format { path, wanted: "a model", source })
    }
}

impl<M: ModelKind> ModelMetadata<M> {
    /// All that belongs to `model`.
    pub fn new(model: M, features: LogMelConfig, tokenizer: Tokenizer) -> Self {
        Self { kind: M::KIND.into(), model, features, tokenizer }
    }

    /// Whether a model of the one reads the same numbers as a model of the other. Sizes may differ where that does not change
    /// the weights, as dropout does; the weights say so themselves.
    pub fn has_same_inputs(&self, other: &Self) -> bool {
        self.tokenizer == other.tokenizer && self.features == other.features
    }

    /// Writes it into a folder.
    pub fn write(&self, folder: &Path) -> Result<(), ModelError> {
        let path = ModelFolder(folder).metadata_file();
        let text = serde_json::to_string_pretty(self).expect("metadata is plain data");
        std::fs::write(&path, text).map_err(|source| ModelError::Io { path, source })
    }

    /// Reads that of a folder.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let value = ModelFolder(folder).value()?;
        if let Some(found) = value["kind"].as_str()
            && found != M::KIND
        {
            return Err(ModelError::Kind { folder: folder.into(), found: found.into(), wanted: M::NAME });
        }
        let path = ModelFolder(folder).metadata_file();
        serde_json::from_value(value).map_err(|source| ModelError::Format { path, wanted: M::NAME, source })
    }
}
