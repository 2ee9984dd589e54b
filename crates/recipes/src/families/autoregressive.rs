//! The family of autoregressive synthesizers: text becomes log-mels, frame after frame.

use plimsoll_audio::LogMelConfig;
use plimsoll_config::RunConfig;
use plimsoll_config::choices::FamilyChoice;
use plimsoll_core::counted;
use plimsoll_layers::LengthPolicy;
use plimsoll_speech::tts::{LengthBounds, LossConfig, MelNormalization, SynthesizerConfig};
use serde_json::{Value, json};

use super::ModelPlan;
use super::family::{FamilyModel, quoted};
use super::recognizer::{length, length_keys};
use super::voice::{TOKEN_TABLE, VoiceModel, distance, distance_word, voice, voice_keys};

impl VoiceModel for SynthesizerConfig {
    const FAMILY: FamilyChoice = FamilyChoice::Autoregressive;

    fn from_config(config: &RunConfig, features: usize, vocabulary: usize) -> Self {
        synthesizer(config, features, vocabulary)
    }

    fn plan(self) -> ModelPlan {
        ModelPlan::Synthesizer(self)
    }
}

impl FamilyModel for SynthesizerConfig {
    fn summary(&self) -> String {
        let (frames, tokens) = (counted(self.reduction, "frame"), counted(self.vocabulary, "token"));
        format!("synthesizer: {}, {frames} a step, {tokens}", self.size())
    }

    fn size(&self) -> String {
        let Self { text_layers, text_dim, decoder_layers, decoder_dim, .. } = self;
        format!("{text_layers} + {decoder_layers} blocks of width {text_dim} and {decoder_dim}")
    }

    fn blocks(&self) -> u32 {
        self.text_layers.max(self.decoder_layers) as u32
    }

    fn tokens_max(&self, frames: u32) -> u32 {
        frames.max(1)
    }

    fn features(&self) -> usize {
        self.features
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn keys(&self, features: &LogMelConfig) -> Vec<(&'static str, String)> {
        let number = |n: usize| n.to_string();
        let LossConfig { distance, stop_weight, stop_positive, guide_weight, guide_sigma } = self.loss;
        let mut keys = vec![
            ("model.family", quoted(FamilyChoice::Autoregressive)),
            ("model.d_model", number(self.text_dim)),
            ("model.text_encoder_dim", number(self.text_dim)),
            ("model.text_encoder_layers", number(self.text_layers)),
            ("model.text_encoder_heads", number(self.text_heads)),
            ("model.decoder_dim", number(self.decoder_dim)),
            ("model.decoder_layers", number(self.decoder_layers)),
            ("model.decoder_heads", number(self.decoder_heads)),
            ("model.feed_forward_multiplier", number(self.feed_forward_multiplier)),
            ("model.prenet_dim", number(self.prenet_dim)),
            ("model.prenet_dropout", self.prenet_dropout.to_string()),
            ("model.postnet_layers", number(self.postnet_layers)),
            ("model.postnet_channels", number(self.postnet_channels)),
            ("model.reduction_factor", number(self.reduction)),
            ("model.dropout", self.dropout.to_string()),
            ("model.mel_loss", distance_word(distance)),
            ("model.stop_loss_weight", stop_weight.to_string()),
            ("model.stop_positive_weight", stop_positive.to_string()),
            ("model.guided_attention_weight", guide_weight.to_string()),
            ("model.guided_attention_sigma", guide_sigma.to_string()),
        ];
        keys.extend(voice_keys(&self.voice, features));
        keys.extend(length_keys(self.length));
        keys
    }

    fn token_axis(&self, name: &str) -> Option<usize> {
        name.ends_with(TOKEN_TABLE).then_some(0)
    }

    fn positions(&self, frames: u32) -> u32 {
        self.steps(frames)
    }

    fn positions_label(&self) -> &'static str {
        "steps of the decoder"
    }

    fn sizes(&self) -> Value {
        json!({
            "text_encoder_dim": self.text_dim,
            "text_encoder_layers": self.text_layers,
            "decoder_dim": self.decoder_dim,
            "decoder_layers": self.decoder_layers,
            "reduction_factor": self.reduction,
        })
    }

    fn length_policy(&mut self) -> Option<&mut LengthPolicy> {
        Some(&mut self.length)
    }

    fn length_bounds(&self) -> LengthBounds {
        self.length_bounds
    }

    fn set_length_bounds(&mut self, bounds: LengthBounds) {
        self.length_bounds = bounds;
    }

    fn set_normalization(&mut self, normalization: MelNormalization) {
        self.normalization = MelNormalization { harmonics: None, ..normalization };
    }
}

/// Default number of decoder blocks of a synthesizer.
const DECODER_LAYERS: u32 = 3;

/// Maps `config` to the configuration of its synthesizer, with `features` mel bands and `vocabulary` tokens.
/// Normalization and length bounds come from data and have their defaults here.
fn synthesizer(config: &RunConfig, features: usize, vocabulary: usize) -> SynthesizerConfig {
    let model = &config.model;
    let or = |given: Option<u32>, otherwise: u32| given.unwrap_or(otherwise) as usize;
    let decoder_dim = model.decoder_dim.unwrap_or(model.d_model);
    SynthesizerConfig {
        features,
        vocabulary,
        text_dim: or(model.text_encoder_dim, model.d_model),
        text_layers: model.text_encoder_layers as usize,
        text_heads: or(model.text_encoder_heads, model.attention_heads),
        voice: voice(config),
        decoder_dim: decoder_dim as usize,
        decoder_layers: or(model.decoder_layers, DECODER_LAYERS),
        decoder_heads: or(model.decoder_heads, model.attention_heads),
        feed_forward_multiplier: model.feed_forward_multiplier as usize,
        prenet_dim: or(model.prenet_dim, decoder_dim),
        prenet_dropout: model.prenet_dropout,
        postnet_layers: model.postnet_layers as usize,
        postnet_channels: or(model.postnet_channels, decoder_dim),
        reduction: model.reduction_factor as usize,
        length: length(model),
        dropout: model.dropout,
        loss: LossConfig {
            distance: distance(model.mel_loss),
            stop_weight: model.stop_loss_weight,
            stop_positive: model.stop_positive_weight,
            guide_weight: model.guided_attention_weight,
            guide_sigma: model.guided_attention_sigma,
        },
        normalization: MelNormalization::default(),
        length_bounds: LengthBounds::default(),
    }
}
