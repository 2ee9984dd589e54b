//! What both families of synthesizers share: nearly all of the family, the voice, and features that become sound.

use std::marker::PhantomData;
use std::path::Path;

use plimsoll_audio::{LogMelConfig, MelAxis, Vocoder};
use plimsoll_config::RunConfig;
use plimsoll_config::choices::{FamilyChoice, MelLossChoice, Task};
use plimsoll_data::Dataset;
use plimsoll_layers::Distance;
use plimsoll_speech::ModelMetadata;
use plimsoll_speech::tts::{SpeechConfig, VoiceConfig};

use super::ModelPlan;
use super::family::{Family, FrameCount, ModelFacts, word_of};
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

/// Configuration of a synthesizer: what its family does not share with the other one.
pub(super) trait VoiceModel: SpeechConfig + Sync {
    /// Its family in a configuration.
    const FAMILY: FamilyChoice;

    /// Maps `config` to the model, with `features` mel bands and `vocabulary` tokens.
    fn from_config(config: &RunConfig, features: usize, vocabulary: usize) -> Self;

    /// Returns the plan of the model.
    fn plan(self) -> ModelPlan;

    /// Returns the frames that the tokens of a text are aligned with; `None` if nothing is aligned.
    fn aligned_frames() -> Option<FrameCount> {
        None
    }
}

/// The family of the synthesizers whose configuration is `C`.
pub(super) struct VoiceFamily<C>(pub(super) PhantomData<C>);

impl<C: VoiceModel> Family for VoiceFamily<C> {
    fn kind(&self) -> &'static str {
        C::KIND
    }

    fn task(&self) -> Task {
        Task::Tts
    }

    fn trains(&self, config: &RunConfig) -> bool {
        config.task == self.task() && config.model.family == C::FAMILY
    }

    fn model(&self, config: &RunConfig, features: usize, vocabulary: usize) -> ModelPlan {
        C::from_config(config, features, vocabulary).plan()
    }

    fn check(&self, config: &RunConfig) -> Result<(), Failure> {
        check_features(config)?;
        match C::FAMILY == FamilyChoice::Parallel
            && config.model.pitch
            && !MelAxis::of(&features(&config.features)).has_pitch()
        {
            true => Err(Failure::invalid(
                "`model.pitch` needs at least four mel bands below 1 kHz, and these features have fewer",
                "raise features.n_mels, or leave model.pitch out",
            )),
            false => Ok(()),
        }
    }

    fn names_language(&self) -> bool {
        true
    }

    fn aligned_frames(&self, _: &RunConfig) -> Option<FrameCount> {
        C::aligned_frames()
    }

    fn samples(&self, dataset: Dataset, config: &RunConfig) -> Dataset {
        dataset.for_synthesis(reference_frames(config))
    }

    fn samples_key(&self, config: &RunConfig) -> Option<(&'static str, String)> {
        Some(("data.reference_seconds", config.data.reference_seconds.0.to_string()))
    }

    fn facts(&self, folder: &Path) -> Result<ModelFacts, Failure> {
        let ModelMetadata { run, tokenizer, features, model, .. } = ModelMetadata::<C>::read(folder).invalid()?;
        let (tokenizer, statistics) = (Some(tokenizer), Some(model.statistics()));
        Ok(ModelFacts { model: model.plan(), run, tokenizer, features, statistics })
    }
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
