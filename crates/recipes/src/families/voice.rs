//! What both families of synthesizers share: the voice, its samples, and features that become sound.

use std::path::Path;

use plimsoll_audio::{LogMelConfig, Vocoder};
use plimsoll_config::RunConfig;
use plimsoll_config::choices::MelLossChoice;
use plimsoll_data::Dataset;
use plimsoll_layers::Distance;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::tts::{SpeechConfig, VoiceConfig};

use super::ModelPlan;
use super::family::{ModelFacts, word_of};
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
pub(super) fn facts<C: SpeechConfig>(folder: &Path, plan: fn(C) -> ModelPlan) -> Result<ModelFacts, Failure> {
    let ModelMetadata { run, tokenizer, features, model, .. } = ModelMetadata::<C>::read(folder).invalid()?;
    let (tokenizer, statistics) = (Some(tokenizer), Some(model.statistics()));
    Ok(ModelFacts { model: plan(model), run, tokenizer, features, statistics })
}

/// End of the name of the parameter with a row for each token.
pub(super) const TOKEN_TABLE: &str = "embedding.weight";

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

/// Returns the keys of [`voice`].
pub(super) fn voice_keys(voice: &VoiceConfig, features: &LogMelConfig) -> Vec<(&'static str, String)> {
    // Within the last frame, which is counted whole.
    let frames = voice.reference_frames as f64 - 0.5;
    let seconds = frames * features.hop_length as f64 / f64::from(features.sample_rate);
    vec![
        ("model.audio_encoder_layers", voice.layers.to_string()),
        ("model.audio_encoder_dim", voice.channels.to_string()),
        ("model.speaker_dim", voice.speaker_dim.to_string()),
        ("model.style_tokens", voice.style_tokens.to_string()),
        ("data.reference_seconds", seconds.to_string()),
    ]
}

/// Returns the value of `model.mel_loss` for a distance.
pub(super) fn distance_word(wanted: Distance) -> String {
    word_of(MelLossChoice::ALL, |choice| distance(choice) == wanted)
}

/// Maps the distance of log-mels.
pub(super) fn distance(choice: MelLossChoice) -> Distance {
    match choice {
        MelLossChoice::L1 => Distance::L1,
        MelLossChoice::Huber => Distance::Huber,
    }
}
