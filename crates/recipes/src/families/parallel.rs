//! The family of parallel synthesizers: text becomes log-mels, all frames at once.

use plimsoll_audio::{LogMelConfig, MelAxis};
use plimsoll_config::RunConfig;
use plimsoll_config::choices::FamilyChoice;
use plimsoll_core::counted;
use plimsoll_speech::tts::{LengthBounds, MelNormalization, ParallelConfig, ParallelLossConfig};
use serde_json::{Value, json};

use super::ModelPlan;
use super::family::{FamilyModel, FrameCount, quoted};
use super::voice::{TOKEN_TABLE, VoiceModel, distance, distance_word, voice, voice_keys};
use crate::features::features as features_of;

/// Tokens that a synthesizer adds to a text: its language and its end.
const ADDED_TOKENS: u32 = 2;

impl VoiceModel for ParallelConfig {
    const FAMILY: FamilyChoice = FamilyChoice::Parallel;

    fn from_config(config: &RunConfig, features: usize, vocabulary: usize) -> Self {
        parallel(config, features, vocabulary)
    }

    fn plan(self) -> ModelPlan {
        ModelPlan::Parallel(self)
    }

    fn aligned_frames() -> Option<FrameCount> {
        Some(Box::new(|frames| frames.saturating_sub(ADDED_TOKENS)))
    }
}

impl FamilyModel for ParallelConfig {
    fn summary(&self) -> String {
        format!("parallel synthesizer: {}, {}", self.size(), counted(self.vocabulary, "token"))
    }

    fn size(&self) -> String {
        let Self { text_layers, text_dim, decoder_layers, decoder_dim, .. } = self;
        format!("{text_layers} + {decoder_layers} blocks of width {text_dim} and {decoder_dim}")
    }

    fn blocks(&self) -> u32 {
        self.text_layers.max(self.decoder_layers) as u32
    }

    fn tokens_max(&self, frames: u32) -> u32 {
        // The start token has a frame, too.
        frames.saturating_sub(1).max(1)
    }

    fn features(&self) -> usize {
        self.features
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn keys(&self, features: &LogMelConfig) -> Vec<(&'static str, String)> {
        let number = |n: usize| n.to_string();
        let ParallelLossConfig { distance, prior_weight, duration_weight, prosody_weight } = self.loss;
        let mut keys = vec![
            ("model.family", quoted(FamilyChoice::Parallel)),
            ("model.d_model", number(self.text_dim)),
            ("model.text_encoder_dim", number(self.text_dim)),
            ("model.text_encoder_layers", number(self.text_layers)),
            ("model.text_encoder_kernel", number(self.text_kernel)),
            ("model.voice_links", self.voice_links.to_string()),
            ("model.decoder_dim", number(self.decoder_dim)),
            ("model.decoder_layers", number(self.decoder_layers)),
            ("model.decoder_kernel", number(self.decoder_kernel)),
            ("model.feed_forward_multiplier", number(self.feed_forward_multiplier)),
            ("model.dropout", self.dropout.to_string()),
            ("model.mel_loss", distance_word(distance)),
            ("model.prior_loss_weight", prior_weight.to_string()),
            ("model.duration_loss_weight", duration_weight.to_string()),
            ("model.prosody_dim", number(self.prosody_dim)),
            ("model.prosody_noise", self.prosody_noise.to_string()),
            ("model.pitch", self.pitch.is_some().to_string()),
            ("model.pitch_harmonics", self.pitch_harmonics.to_string()),
            ("model.prosody_loss_weight", prosody_weight.to_string()),
        ];
        keys.extend(voice_keys(&self.voice, features));
        keys
    }

    fn token_axis(&self, name: &str) -> Option<usize> {
        name.ends_with(TOKEN_TABLE).then_some(0)
    }

    fn begins_at_zero(&self, name: &str) -> bool {
        name.starts_with("voice_links.") || name.starts_with("prosody.harmonics_to_text.")
    }

    fn positions(&self, frames: u32) -> u32 {
        frames
    }

    fn sizes(&self) -> Value {
        json!({
            "text_encoder_dim": self.text_dim,
            "text_encoder_layers": self.text_layers,
            "decoder_dim": self.decoder_dim,
            "decoder_layers": self.decoder_layers,
        })
    }

    fn length_bounds(&self) -> LengthBounds {
        self.length_bounds
    }

    fn set_length_bounds(&mut self, bounds: LengthBounds) {
        self.length_bounds = bounds;
    }

    fn set_normalization(&mut self, normalization: MelNormalization) {
        let harmonics = normalization.harmonics.filter(|_| self.pitch.is_some());
        self.normalization = MelNormalization { harmonics, ..normalization };
    }
}

/// Default number of decoder blocks of a parallel synthesizer.
const DECODER_LAYERS: u32 = 6;

/// Maps `config` to the configuration of its parallel synthesizer, with `features` mel bands and `vocabulary` tokens.
/// Normalization and length bounds come from data and have their defaults here.
fn parallel(config: &RunConfig, features: usize, vocabulary: usize) -> ParallelConfig {
    let model = &config.model;
    let or = |given: Option<u32>, otherwise: u32| given.unwrap_or(otherwise) as usize;
    ParallelConfig {
        features,
        vocabulary,
        text_dim: or(model.text_encoder_dim, model.d_model),
        text_layers: model.text_encoder_layers as usize,
        text_kernel: model.text_encoder_kernel as usize,
        voice: voice(config),
        voice_links: model.voice_links,
        decoder_dim: or(model.decoder_dim, model.d_model),
        decoder_layers: or(model.decoder_layers, DECODER_LAYERS),
        decoder_kernel: model.decoder_kernel as usize,
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        prosody_dim: model.prosody_dim as usize,
        pitch: model.pitch.then(|| MelAxis::of(&features_of(&config.features))),
        pitch_harmonics: model.pitch && model.pitch_harmonics,
        prosody_noise: model.prosody_noise,
        dropout: model.dropout,
        loss: ParallelLossConfig {
            distance: distance(model.mel_loss),
            prior_weight: model.prior_loss_weight,
            duration_weight: model.duration_loss_weight,
            prosody_weight: model.prosody_loss_weight,
        },
        normalization: MelNormalization::default(),
        length_bounds: LengthBounds::default(),
    }
}
