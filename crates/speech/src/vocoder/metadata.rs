//! The description of a vocoder beside its weights (`model.json`), and how a vocoder is loaded.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_tape::{NamedTensor, apply, check_shapes, on_capture_device};
use serde::{Deserialize, Serialize};

use super::{NeuralVocoder, VocoderTaskConfig};
use crate::metadata::{read_described, write_described};
use crate::{ModelError, ModelFolder};

/// Beginning of the names of a vocoder's weights in the checkpoints of its training.
const VOCODER: &str = "vocoder.";
/// Beginning of the names of the discriminators' weights there.
const DISCRIMINATORS: &str = "discriminators.";

/// Everything besides the weights that is needed to use or train a vocoder; stored as `model.json` in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VocoderMetadata {
    kind: String,
    /// Configuration of the vocoder and its training, with the settings of the log-mels.
    pub model: VocoderTaskConfig,
    /// Identity of the run that trains the vocoder; only its checkpoints are used. `None` for an exported vocoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Factor of the adapters in the checkpoints of the run; `None` if the run trains weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_scale: Option<f64>,
}

impl VocoderMetadata {
    /// Name of the kind in files, as [`ModelFolder::kind`] returns it.
    pub const KIND: &'static str = "vocoder";

    /// Makes the metadata of a vocoder with this configuration.
    pub fn new(model: VocoderTaskConfig) -> Self {
        Self { kind: Self::KIND.into(), model, run: None, lora_scale: None }
    }

    /// Sets the identity of the run that trains the vocoder.
    #[must_use]
    pub fn with_run(self, run: impl Into<String>) -> Self {
        Self { run: Some(run.into()), ..self }
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
    /// [`ModelError::Format`] when it is not valid for this version, [`ModelError::Impossible`] when no vocoder has its
    /// sizes, [`ModelError::Io`] when it cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ModelError> {
        let metadata: Self = read_described(folder, Self::KIND, "a vocoder")?;
        let path = ModelFolder(folder).metadata_file();
        metadata.model.check().map_err(|source| ModelError::Impossible { path, source })?;
        Ok(metadata)
    }
}

impl NeuralVocoder {
    /// Loads the vocoder in `folder` onto `device`: of a run, the best checkpoint without the discriminators. Returns it with
    /// the warnings of [`ModelFolder::weights`].
    ///
    /// # Errors
    /// As [`VocoderMetadata::read`] and [`ModelFolder::weights`], and [`ModelError::Parameters`] when the weights do not fit
    /// the configuration.
    pub fn load(folder: &Path, device: &Device) -> Result<(Self, Vec<String>), ModelError> {
        let config = VocoderMetadata::read(folder)?.model.vocoder;
        let (weights, warnings) = ModelFolder(folder).weights()?;
        let weights = vocoder_weights(weights);
        on_capture_device(|device| check_shapes(&config.init_unseeded(device), &weights))?;
        Ok((apply(config.init_unseeded(device), weights)?, warnings))
    }
}

/// Returns the weights of the vocoder alone, of those of its training: without the discriminators, under the names that
/// [`NeuralVocoder`] has.
pub fn vocoder_weights(weights: Vec<NamedTensor>) -> Vec<NamedTensor> {
    let kept = weights.into_iter().filter(|weight| !weight.name.starts_with(DISCRIMINATORS));
    let renamed = kept.map(|weight| match weight.name.strip_prefix(VOCODER) {
        Some(name) => NamedTensor { name: name.into(), ..weight },
        None => weight,
    });
    renamed.collect()
}
