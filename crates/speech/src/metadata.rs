//! The description of a model beside its weights (`model.json`), and the folder that holds both.

use std::path::{Path, PathBuf};

use plimsoll_audio::{FeatureError, LogMelConfig, VocoderError};
use plimsoll_tape::{NamedTensor, ParametersError};
use plimsoll_text::Tokenizer;
use plimsoll_train::{CheckpointError, CheckpointStore, WeightsError, read_weights};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A configuration of one kind of model, such as a recognizer. It is stored in `model.json`.
pub trait ModelKind: Serialize + DeserializeOwned {
    /// Name of the kind in files: `asr` or `tts`.
    const KIND: &'static str;
    /// Name of the kind in messages, with its article: `a recognizer`.
    const NAME: &'static str;
}

/// Everything besides the weights that is needed to use a model. It is the file `model.json` of a model's folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMetadata<M> {
    /// [`ModelKind::KIND`] of the model.
    kind: String,
    /// The model's configuration, mostly its sizes. Older files call it `recogniser`.
    #[serde(alias = "recogniser")]
    pub model: M,
    /// The features that the model reads or writes.
    pub features: LogMelConfig,
    /// Maps texts to the model's tokens and back.
    pub tokenizer: Tokenizer,
}

/// Why the model of a folder cannot be read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The folder has no `model.json`.
    #[error("{} holds no trained model: it has no model.json", folder.display())]
    NoModel {
        /// The folder that has no `model.json`.
        folder: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot access {}", path.display())]
    Io {
        /// The file that cannot be read or written.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// `model.json` describes another kind of model.
    #[error("{} holds a model of the kind `{found}`, and {wanted} was expected", folder.display())]
    Kind {
        /// The folder of the model.
        folder: PathBuf,
        /// The kind in `model.json`.
        found: String,
        /// The expected kind, in words.
        wanted: &'static str,
    },
    /// `model.json` is not JSON, or its fields are not those of this version.
    #[error("{} does not describe {wanted} of this version", path.display())]
    Format {
        /// The path of `model.json`.
        path: PathBuf,
        /// The expected kind of model, in words.
        wanted: &'static str,
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// The run has no checkpoint that can be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The weights of an exported model cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The names or shapes of the weights do not match the configuration.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// The features cannot be turned back into sound, which a synthesizer needs.
    #[error(transparent)]
    Vocoder(#[from] VocoderError),
    /// The configuration of the features is invalid.
    #[error(transparent)]
    Features(#[from] FeatureError),
}

/// Paths inside a folder with a model: the folder of a run with checkpoints, or of an exported model with one file of
/// weights.
///
/// ```
/// use std::path::Path;
/// use plimsoll_speech::ModelFolder;
///
/// assert_eq!(ModelFolder(Path::new("runs/asr-1")).metadata_file(), Path::new("runs/asr-1/model.json"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ModelFolder<'a>(pub &'a Path);

impl ModelFolder<'_> {
    /// Path of `model.json`: the [`ModelMetadata`].
    pub fn metadata_file(self) -> PathBuf {
        self.0.join("model.json")
    }

    /// Path of the folder with a run's checkpoints.
    pub fn checkpoints(self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// Path of the weights of an exported model, in the safetensors format.
    pub fn exported_weights(self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// Path of the recording whose voice a synthesizer uses when the caller names no other.
    pub fn default_voice(self) -> PathBuf {
        self.0.join("voice.wav")
    }

    /// Kind of the model in the folder, `asr` or `tts`, or `unknown` where `model.json` names none.
    ///
    /// # Errors
    /// [`ModelError::NoModel`], [`ModelError::Io`] or [`ModelError::Format`] when `model.json` is missing, unreadable
    /// or no JSON.
    pub fn kind(self) -> Result<String, ModelError> {
        Ok(self.value()?["kind"].as_str().unwrap_or("unknown").into())
    }

    /// Weights of the run's best checkpoint, the averaged ones (EMA) where the checkpoint has them. Without a folder of
    /// checkpoints these are the weights of the exported model.
    ///
    /// # Errors
    /// [`ModelError::Checkpoint`] or [`ModelError::Weights`] when the file is missing or damaged.
    pub fn weights(self) -> Result<Vec<NamedTensor>, ModelError> {
        let (checkpoints, exported_weights) = (self.checkpoints(), self.exported_weights());
        if !checkpoints.exists() && exported_weights.is_file() {
            return Ok(read_weights(&exported_weights)?);
        }
        Ok(CheckpointStore::new(checkpoints, 1).best()?.evaluation_weights())
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
    /// Metadata of a model with this configuration, these features and this tokenizer.
    pub fn new(model: M, features: LogMelConfig, tokenizer: Tokenizer) -> Self {
        Self { kind: M::KIND.into(), model, features, tokenizer }
    }

    /// Whether both models have the same features and the same tokens, so that one can continue the training of the
    /// other.
    ///
    /// The configurations may differ in values that do not change the weights, such as dropout. A difference that
    /// changes the weights is reported when they are loaded.
    pub fn has_same_inputs(&self, other: &Self) -> bool {
        self.tokenizer == other.tokenizer && self.features == other.features
    }

    /// Writes `model.json` into `folder`.
    ///
    /// # Errors
    /// [`ModelError::Io`] when the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ModelError> {
        let path = ModelFolder(folder).metadata_file();
        let text = serde_json::to_string_pretty(self).expect("metadata is plain data");
        std::fs::write(&path, text).map_err(|source| ModelError::Io { path, source })
    }

    /// Reads `model.json` of `folder`.
    ///
    /// # Errors
    /// [`ModelError::NoModel`] without the file, [`ModelError::Kind`] when it describes another kind of model,
    /// [`ModelError::Format`] when it is not valid for this version, [`ModelError::Io`] when it cannot be read.
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
