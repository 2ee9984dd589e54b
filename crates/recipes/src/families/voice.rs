//! What both families of synthesizers share: the voice, its samples, and features that become sound.

use std::path::Path;

use plimsoll_audio::Vocoder;
use plimsoll_config::choices::MelLossChoice;
use plimsoll_config::{ModelConfig, RunConfig};
use plimsoll_data::Dataset;
use plimsoll_layers::Distance;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::tts::{SpeechConfig, VoiceConfig};

use super::family::{FamilyModel, ModelFacts};
use crate::error::{Failure, FailureExt};
use crate::features::{features, reference_frames};

/// Checks that the features of `config` can become sound again.
pub(super) fn check_features(config: &RunConfig) -> Result<(), Failure> {
    match Vocoder::new(&features(&config.features)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::invalid(
            error.to_string(),
            "`--set features.preset=myxtts` has features that can become sound",
        )),
    }
}

/// Returns `dataset` with a reference recording of the voice for each utterance.
pub(super) fn samples(dataset: Dataset, config: &RunConfig) -> Dataset {
    dataset.for_synthesis(reference_frames(config))
}

/// Returns the key that decides the references.
pub(super) fn samples_key(config: &RunConfig) -> (&'static str, String) {
    ("data.reference_seconds", config.data.reference_seconds.0.to_string())
}

/// Reads the facts of the synthesizer in `folder`.
pub(super) fn facts<C: SpeechConfig + FamilyModel>(folder: &Path) -> Result<ModelFacts, Failure> {
    let ModelMetadata { run, tokenizer, features, model, .. } = ModelMetadata::<C>::read(folder).invalid()?;
    Ok(ModelFacts { run, tokenizer: Some(tokenizer), features, statistics: Some(model.statistics()), width: None })
}

/// Maps `config` to the encoder of the voice of a synthesizer.
pub(super) fn voice(config: &RunConfig) -> VoiceConfig {
    let model = &config.model;
    VoiceConfig {
        layers: model.audio_encoder_layers as usize,
        channels: model.audio_encoder_dim.unwrap_or(model.d_model) as usize,
        speaker_dim: model.speaker_dim as usize,
        style_tokens: model.style_tokens as usize,
        style_dim: model.speaker_dim as usize,
        style_heads: if model.speaker_dim.is_multiple_of(4) { 4 } else { 1 },
        reference_frames: reference_frames(config).0 as usize,
    }
}

/// Maps the distance of log-mels.
pub(super) fn distance(model: &ModelConfig) -> Distance {
    match model.mel_loss {
        MelLossChoice::L1 => Distance::L1,
        MelLossChoice::Huber => Distance::Huber,
    }
}
