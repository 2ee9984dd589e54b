//! The description of a model beside its weights (`model.json`), and the folder that holds both.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use plimsoll_audio::{FeatureError, LogMel, LogMelConfig, VocoderError};
use plimsoll_core::{Seconds, error_chain, open_regular_file, replace_file};
use plimsoll_tape::{NamedTensor, ParametersError, apply, check_shapes, on_capture_device};
use plimsoll_text::Tokenizer;
use plimsoll_train::{CheckpointError, CheckpointStore, WeightsError, read_weights};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::{self, InvalidField};

/// Largest `model.json`, in bytes. Its tokenizer can have some megabytes.
const MAX_BYTES: u64 = 64 << 20;

/// Says what is missing where a folder has no `model.json`.
fn missing(folder: &Path) -> &'static str {
    if folder.exists() { "it has no model.json" } else { "there is no such folder" }
}

/// Returns the kind of a model in words, with its article.
fn in_words(kind: &str) -> String {
    match kind {
        "asr" => "a recognizer".into(),
        "tts" => "an autoregressive synthesizer".into(),
        "parallel_tts" => "a parallel synthesizer".into(),
        "vocoder" => "a vocoder".into(),
        "whisper" => "a Whisper model".into(),
        other => format!("a model of the kind `{other}`"),
    }
}

/// A configuration of one kind of model, such as a recognizer. It is stored in `model.json`.
pub trait ModelKind: Serialize + DeserializeOwned {
    /// Name of the kind in files: `asr` or `tts`.
    const KIND: &'static str;
    /// Name of the kind in messages, with its article, such as `a recognizer`.
    const NAME: &'static str;

    /// Checks that a model of this configuration can be built.
    ///
    /// # Errors
    /// The first field for which it cannot.
    fn check(&self) -> Result<(), InvalidField>;

    /// Returns the number of features in a frame, and the number of tokens.
    fn input_sizes(&self) -> (usize, usize);
}

/// Everything besides the weights that is needed to use a model; stored as `model.json` in the folder of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMetadata<M> {
    /// [`ModelKind::KIND`] of the model.
    kind: String,
    /// Configuration of the model, mostly its sizes. Older files call this field `recogniser`.
    #[serde(alias = "recogniser")]
    pub model: M,
    /// Settings of the features that the model reads or writes.
    pub features: LogMelConfig,
    /// Tokenizer, which maps texts to the model's tokens and back.
    pub tokenizer: Tokenizer,
    /// Identity of the run that trains the model; only its checkpoints are used. `None` for an exported model, and for a
    /// run of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Length that nearly all utterances have which a recognizer learned from, in seconds: long recordings are divided into
    /// parts that are no longer. `None` for other models, and for one of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<Seconds>,
    /// Factor of the adapters in the checkpoints of the run; `None` if the run trains weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_scale: Option<f64>,
}

/// Error of reading or using the model of a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The folder has no `model.json`.
    #[error("{} holds no trained model: {}", folder.display(), missing(folder))]
    NoModel {
        /// Folder that has no `model.json`.
        folder: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot access {}", path.display())]
    Io {
        /// File that cannot be read or written.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// `model.json` describes another kind of model.
    #[error("{} holds {}, and {wanted} was expected", folder.display(), in_words(found))]
    Kind {
        /// Folder of the model.
        folder: PathBuf,
        /// Kind of model that `model.json` names.
        found: String,
        /// Expected kind of model, in words.
        wanted: &'static str,
    },
    /// `model.json` is not JSON, or does not have the fields of this version.
    #[error("{} does not describe {wanted} of this version", path.display())]
    Format {
        /// Path of `model.json`.
        path: PathBuf,
        /// Expected kind of model, in words.
        wanted: &'static str,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
    /// `model.json` describes a model that cannot be built.
    #[error("{} describes a model that cannot be built", path.display())]
    Impossible {
        /// Path of `model.json`.
        path: PathBuf,
        /// Field with an impossible value.
        source: InvalidField,
    },
    /// The model of another program cannot be used.
    #[error("the model in {} cannot be used: {reason}", folder.display())]
    Foreign {
        /// Folder of the model.
        folder: PathBuf,
        /// What is missing or not supported.
        reason: String,
    },
    /// `model.json` is too large to describe a model.
    #[error("{} is larger than {} MiB", path.display(), MAX_BYTES >> 20)]
    TooLarge {
        /// Path of `model.json`.
        path: PathBuf,
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
    /// A vocoder was trained with other features than those of the synthesizer.
    #[error("the vocoder was trained with other features ({vocoder}) than the synthesizer ({model})")]
    OtherFeatures {
        /// Features of the vocoder, in words.
        vocoder: String,
        /// Features of the synthesizer, in words.
        model: String,
    },
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
    /// Returns the path of `model.json`, which holds the [`ModelMetadata`].
    pub fn metadata_file(self) -> PathBuf {
        self.0.join("model.json")
    }

    /// Returns the path of the folder with a run's checkpoints.
    pub fn checkpoints(self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// Returns the path of the weights of an exported model, in the safetensors format.
    pub fn exported_weights(self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// Returns whether there are weights: a checkpoint of a run, or those of an exported model. They may be damaged.
    pub fn has_weights(self) -> bool {
        let mut checkpoints = std::fs::read_dir(self.checkpoints()).into_iter().flatten().flatten();
        self.exported_weights().is_file()
            || checkpoints.any(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
    }

    /// Returns the path of the recording whose voice a synthesizer uses when the caller names no other recording.
    pub fn default_voice(self) -> PathBuf {
        self.0.join("voice.wav")
    }

    /// Returns the path of the folder with the vocoder of a synthesizer, which an export of a vocoder can fill. Without it the
    /// synthesizer speaks with Griffin-Lim.
    pub fn vocoder(self) -> PathBuf {
        self.0.join("vocoder")
    }

    /// Reads the kind of the model in the folder, such as `asr`, `tts` or `vocoder`; `unknown` where `model.json` names no kind. A folder
    /// of Hugging Face has the kind that its `config.json` names, such as `whisper`.
    ///
    /// # Errors
    /// [`ModelError::NoModel`], [`ModelError::Io`] or [`ModelError::Format`] when `model.json` is missing, unreadable
    /// or no JSON.
    pub fn kind(self) -> Result<String, ModelError> {
        let (value, key) = match self.is_hugging_face() {
            true => (read_json(&self.0.join(HUGGING_FACE))?, "model_type"),
            false => (self.value()?, "kind"),
        };
        Ok(value[key].as_str().unwrap_or("unknown").into())
    }

    /// Reads the weights of the run's best checkpoint: the averaged weights (EMA) where the checkpoint has them.
    /// Without a folder of checkpoints, reads the weights of the exported model.
    ///
    /// If a checkpoint cannot be read, the weights may be those of another one; each warning then says why they may not be
    /// the best.
    ///
    /// # Errors
    /// [`ModelError::Checkpoint`] or [`ModelError::Weights`] when the file is missing or damaged.
    pub fn weights(self) -> Result<(Vec<NamedTensor>, Vec<String>), ModelError> {
        let (checkpoints, exported_weights) = (self.checkpoints(), self.exported_weights());
        // An exported model names no run.
        let is_exported = exported_weights.is_file() || self.value()?["run"].as_str().is_none_or(str::is_empty);
        if !checkpoints.exists() && is_exported {
            return Ok((read_weights(&exported_weights)?, Vec::new()));
        }
        let (checkpoint, doubts) = self.checkpoint_store()?.best()?;
        let weights = self.merged(checkpoint.evaluation_weights())?;
        Ok((weights, doubts.iter().map(|doubt| error_chain(doubt)).collect()))
    }

    /// Adds the adapters of a checkpoint of the run to the weights that they belong to; weights without adapters stay as they are.
    ///
    /// # Errors
    /// As [`kind`](Self::kind).
    pub fn merged(self, weights: Vec<NamedTensor>) -> Result<Vec<NamedTensor>, ModelError> {
        Ok(match self.lora_scale()? {
            Some(scale) => plimsoll_tape::lora::merged(weights, scale),
            None => weights,
        })
    }

    /// Returns the factor of the adapters of the run; `None` if it trains weights.
    ///
    /// # Errors
    /// As [`kind`](Self::kind).
    pub fn lora_scale(self) -> Result<Option<f64>, ModelError> {
        Ok(self.value()?["lora_scale"].as_f64())
    }

    /// Writes the factor of the adapters of the run into `model.json`.
    ///
    /// # Errors
    /// [`ModelError::Io`] when the file cannot be read or written.
    pub fn write_lora_scale(self, scale: f64) -> Result<(), ModelError> {
        let mut value = self.value()?;
        value["lora_scale"] = scale.into();
        write_described(self.0, &value)
    }

    /// Returns the store of the run's checkpoints, which refuses checkpoints of other runs.
    ///
    /// # Errors
    /// As [`kind`](Self::kind).
    pub fn checkpoint_store(self) -> Result<CheckpointStore, ModelError> {
        let run = self.value()?["run"].as_str().unwrap_or_default().to_string();
        Ok(CheckpointStore::new(self.checkpoints(), 1).for_run(run))
    }

    /// Returns whether the folder holds a model of Hugging Face and none of ours.
    pub(crate) fn is_hugging_face(self) -> bool {
        !self.metadata_file().is_file() && self.0.join(HUGGING_FACE).is_file()
    }

    fn value(self) -> Result<Value, ModelError> {
        read_json(&self.metadata_file()).map_err(|error| match error {
            ModelError::Io { source, .. } if is_missing(&source) => ModelError::NoModel { folder: self.0.into() },
            error => error,
        })
    }
}

/// Name of the file with which a model of Hugging Face is described.
pub(crate) const HUGGING_FACE: &str = "config.json";

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

/// Reads the description of a model.
pub(crate) fn read_json(path: &Path) -> Result<Value, ModelError> {
    let mut text = String::new();
    let read = open_regular_file(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    read.map_err(|source| ModelError::Io { path: path.into(), source })?;
    if text.len() as u64 > MAX_BYTES {
        return Err(ModelError::TooLarge { path: path.into() });
    }
    let format = |source| ModelError::Format { path: path.into(), wanted: "a model", source: short_error(source) };
    serde_json::from_str(&text).map_err(format)
}

/// Reads `model.json` in `folder` as the description of a model of kind `kind`, which messages call `wanted`.
pub(crate) fn read_described<T: DeserializeOwned>(
    folder: &Path,
    kind: &str,
    wanted: &'static str,
) -> Result<T, ModelError> {
    if ModelFolder(folder).is_hugging_face() {
        return Err(ModelError::Kind { folder: folder.into(), found: ModelFolder(folder).kind()?, wanted });
    }
    let value = ModelFolder(folder).value()?;
    if let Some(found) = value["kind"].as_str()
        && found != kind
    {
        return Err(ModelError::Kind { folder: folder.into(), found: found.into(), wanted });
    }
    let path = ModelFolder(folder).metadata_file();
    serde_json::from_value(value).map_err(|source| ModelError::Format { path, wanted, source: short_error(source) })
}

/// Writes `metadata` as `model.json` into `folder`.
pub(crate) fn write_described(folder: &Path, metadata: &impl Serialize) -> Result<(), ModelError> {
    let path = ModelFolder(folder).metadata_file();
    let text = serde_json::to_string_pretty(metadata).expect("metadata is plain data");
    replace_file(&path, |file| file.write_all(text.as_bytes())).map_err(|source| ModelError::Io { path, source })
}

/// Builds a model with `init` on `device` and gives it the weights in `folder`; returns it with the warnings of
/// [`ModelFolder::weights`]. The shapes are compared first, without
/// memory for a model that the weights do not fit.
pub(crate) fn with_weights<M: Module>(
    init: impl Fn(&Device) -> M,
    folder: ModelFolder<'_>,
    device: &Device,
) -> Result<(M, Vec<String>), ModelError> {
    let (weights, warnings) = folder.weights()?;
    on_capture_device(|device| check_shapes(&init(device), &weights))?;
    Ok((apply(init(device), weights)?, warnings))
}

/// Largest number of characters of a JSON error that a message shows.
const MAX_QUOTE: usize = 300;

/// Returns `error`, or an error with the beginning of its message if the message quotes too much of a file.
fn short_error(error: serde_json::Error) -> serde_json::Error {
    let message = error.to_string();
    match message.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => serde::de::Error::custom(format!("{}…", &message[..end])),
        None => error,
    }
}

impl<M: ModelKind> ModelMetadata<M> {
    /// Makes the metadata of a model with this configuration, these features and this tokenizer.
    pub fn new(model: M, features: LogMelConfig, tokenizer: Tokenizer) -> Self {
        Self { kind: M::KIND.into(), model, features, tokenizer, run: None, longest: None, lora_scale: None }
    }

    /// Sets the identity of the run that trains the model.
    #[must_use]
    pub fn with_run(self, run: impl Into<String>) -> Self {
        Self { run: Some(run.into()), ..self }
    }

    /// Sets the length that nearly all utterances have which the model learns from.
    #[must_use]
    pub fn with_longest(self, longest: Seconds) -> Self {
        Self { longest: Some(longest), ..self }
    }

    /// Writes `model.json` into `folder`.
    ///
    /// # Errors
    /// [`ModelError::Io`] when the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ModelError> {
        write_described(folder, self)
    }

    /// Reads `model.json` in `folder`.
    ///
    /// # Errors
    /// [`ModelError::NoModel`] without the file, [`ModelError::Kind`] when it describes another kind of model,
    /// [`ModelError::Format`] when it is not valid for this version, [`ModelError::Impossible`] when no model has its
    /// sizes, [`ModelError::Features`] for invalid features, [`ModelError::Io`] when it cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let metadata: Self = read_described(folder, M::KIND, M::NAME)?;
        let path = ModelFolder(folder).metadata_file();
        metadata.check().map_err(|source| ModelError::Impossible { path, source })?;
        LogMel::new(&metadata.features)?;
        Ok(metadata)
    }

    /// Checks that the model can be built, and that it fits its features and its tokenizer.
    fn check(&self) -> Result<(), InvalidField> {
        self.model.check()?;
        check::features(&self.features)?;
        let (features, vocabulary) = self.model.input_sizes();
        let mismatch = |field, value: usize, expected| Err(InvalidField { field, value: value.to_string(), expected });
        if features != self.features.n_mels {
            let expected = format!("the `n_mels` of the features, {}", self.features.n_mels);
            return mismatch("features", features, expected);
        }
        let tokens = self.tokenizer.size();
        if vocabulary < tokens {
            return mismatch("vocabulary", vocabulary, format!("at least the {tokens} tokens of the tokenizer"));
        }
        Ok(())
    }
}
