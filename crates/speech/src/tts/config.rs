//! The configuration of a synthesizer.

use plimsoll_layers::{Distance, LengthPolicy};
use serde::{Deserialize, Serialize};

use crate::ModelKind;
use crate::check::{
    InvalidField, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, dropout, even, heads, inside, not_negative, positive, require,
};

/// Most frames of one token: 1000 s of speech, if a frame lasts 10 ms.
const MAX_FRAMES_PER_TOKEN: f64 = 1e5;

/// The configuration of a [`Synthesizer`](super::Synthesizer).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SynthesizerConfig {
    /// Features per frame: the number of mel bands.
    pub features: usize,
    /// Number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// Width of the text encoder.
    pub text_dim: usize,
    /// Number of Transformer blocks of the text encoder.
    pub text_layers: usize,
    /// Number of attention heads of the text encoder. `text_dim` must be a multiple of this number.
    pub text_heads: usize,
    /// Configuration of the voice encoder.
    pub voice: VoiceConfig,
    /// Width of the decoder; even.
    pub decoder_dim: usize,
    /// Number of Transformer blocks of the decoder; at least 1.
    pub decoder_layers: usize,
    /// Number of attention heads of the decoder. `decoder_dim` must be a multiple of this number.
    pub decoder_heads: usize,
    /// Inner width of the feed-forward layers, as a multiple of their block's width.
    pub feed_forward_multiplier: usize,
    /// Width of the prenet.
    pub prenet_dim: usize,
    /// Dropout rate of the prenet, from 0 to 1, active in training and in generation.
    pub prenet_dropout: f64,
    /// Number of convolutions of the postnet; 0 for no postnet.
    pub postnet_layers: usize,
    /// Channels of the postnet.
    pub postnet_channels: usize,
    /// Reduction factor: frames that one step of the decoder generates.
    pub reduction: usize,
    /// Policy of attention for long utterances.
    pub length: LengthPolicy,
    /// Dropout rate in training, from 0 to 1.
    pub dropout: f64,
    /// Settings of the training loss.
    pub loss: LossConfig,
    /// Mean and standard deviation of the training features.
    #[serde(rename = "scale")]
    pub normalization: MelNormalization,
    /// Limits of the generated length, taken from the training data.
    #[serde(rename = "pace")]
    pub length_bounds: LengthBounds,
}

impl ModelKind for SynthesizerConfig {
    const KIND: &'static str = "tts";
    const NAME: &'static str = "an autoregressive synthesizer";

    fn check(&self) -> Result<(), InvalidField> {
        inside("features", self.features, 1..=MAX_WIDTH)?;
        inside("vocabulary", self.vocabulary, 1..=MAX_VOCABULARY)?;
        heads(("text_dim", self.text_dim), ("text_heads", self.text_heads))?;
        even("text_dim", self.text_dim)?;
        inside("text_layers", self.text_layers, 1..=MAX_LAYERS)?;
        heads(("decoder_dim", self.decoder_dim), ("decoder_heads", self.decoder_heads))?;
        even("decoder_dim", self.decoder_dim)?;
        inside("decoder_layers", self.decoder_layers, 1..=MAX_LAYERS)?;
        self.voice.check()?;
        inside("feed_forward_multiplier", self.feed_forward_multiplier, 1..=MAX_LAYERS)?;
        inside("prenet_dim", self.prenet_dim, 1..=MAX_WIDTH)?;
        dropout("prenet_dropout", self.prenet_dropout)?;
        inside("postnet_layers", self.postnet_layers, 0..=MAX_LAYERS)?;
        require(self.postnet_layers != 1, "postnet_layers", 1, "0, or at least 2")?;
        inside("postnet_channels", self.postnet_channels, 1..=MAX_WIDTH)?;
        inside("reduction", self.reduction, 1..=MAX_LAYERS)?;
        dropout("dropout", self.dropout)?;
        let LossConfig { distance: _, stop_weight, stop_positive, guide_weight, guide_sigma } = self.loss;
        not_negative("loss.stop_weight", stop_weight)?;
        positive("loss.stop_positive", stop_positive)?;
        not_negative("loss.guide_weight", guide_weight)?;
        positive("loss.guide_sigma", guide_sigma)?;
        self.normalization.check()?;
        self.length_bounds.check()
    }

    fn input_sizes(&self) -> (usize, usize) {
        (self.features, self.vocabulary)
    }
}

/// The configuration of a [`VoiceEncoder`](super::VoiceEncoder).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoiceConfig {
    /// Number of convolutions over the reference recording.
    pub layers: usize,
    /// Number of channels of the convolutions over the reference recording.
    pub channels: usize,
    /// Width of the speaker vector.
    pub speaker_dim: usize,
    /// Number of learned style tokens; 0 for no style.
    pub style_tokens: usize,
    /// Width of the style vector.
    pub style_dim: usize,
    /// Number of heads of the attention over the style tokens.
    pub style_heads: usize,
    /// Maximum number of frames of a reference recording that are encoded at once.
    pub reference_frames: usize,
}

impl VoiceConfig {
    /// Checks that a voice encoder of this configuration can be built.
    pub(super) fn check(&self) -> Result<(), InvalidField> {
        inside("voice.layers", self.layers, 1..=MAX_LAYERS)?;
        inside("voice.channels", self.channels, 1..=MAX_WIDTH)?;
        inside("voice.speaker_dim", self.speaker_dim, 1..=MAX_WIDTH)?;
        inside("voice.reference_frames", self.reference_frames, 1..=MAX_VOCABULARY)?;
        inside("voice.style_tokens", self.style_tokens, 0..=MAX_WIDTH)?;
        match self.style_tokens {
            0 => Ok(()),
            _ => heads(("voice.style_dim", self.style_dim), ("voice.style_heads", self.style_heads)),
        }
    }

    /// Returns the width of a voice: speaker vector and style vector.
    pub fn width(&self) -> usize {
        self.speaker_dim + if self.style_tokens > 0 { self.style_dim } else { 0 }
    }
}

/// Settings of the training loss, a sum of terms for frames before and after the postnet, stop prediction, and guided
/// attention.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// Distance measure between a generated frame and the true frame.
    pub distance: Distance,
    /// Weight of the stop prediction in the loss, relative to the frames.
    pub stop_weight: f64,
    /// Weight of steps that stop in the stop prediction, relative to the far more frequent steps that continue.
    pub stop_positive: f64,
    /// Weight of guided attention in the loss; 0 turns it off.
    pub guide_weight: f64,
    /// Standard deviation of guided attention's diagonal, in relative positions from 0 to 1.
    pub guide_sigma: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { distance: Distance::L1, stop_weight: 1.0, stop_positive: 5.0, guide_weight: 1.0, guide_sigma: 0.2 }
    }
}

/// Normalization of log-mels: the model computes with `(x - mean) / std`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MelNormalization {
    /// Mean of the training log-mels. Files name it `centre`.
    #[serde(rename = "centre")]
    pub mean: f32,
    /// Standard deviation of the training log-mels. Files name it `spread`.
    #[serde(rename = "spread")]
    pub std: f32,
    /// How strong the harmonics of the training log-mels are (`PitchTables::harmonics` of `plimsoll-audio`); `None` in a model that makes no
    /// use of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harmonics: Option<f32>,
}

impl Default for MelNormalization {
    /// Returns typical values for speech: mean -5, standard deviation 2.5.
    fn default() -> Self {
        Self { mean: -5.0, std: 2.5, harmonics: None }
    }
}

impl MelNormalization {
    /// Checks that log-mels can be normalized.
    pub(super) fn check(&self) -> Result<(), InvalidField> {
        require(self.mean.is_finite(), "scale.centre", self.mean, "a number")?;
        not_negative("scale.harmonics", f64::from(self.harmonics.unwrap_or_default()))?;
        positive("scale.spread", f64::from(self.std))
    }
}

/// Lengths of the training data. They prevent a generation that stops at once or never stops, and they limit how much
/// text is generated at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthBounds {
    /// Lowest number of frames per token of a training utterance. Files name it `fewest`.
    #[serde(rename = "fewest")]
    pub frames_per_token_min: f64,
    /// Highest number of frames per token of a training utterance. Files name it `most`.
    #[serde(rename = "most")]
    pub frames_per_token_max: f64,
    /// Number of tokens of the longest training text; longer texts are split. Files name it `longest`.
    #[serde(rename = "longest")]
    pub tokens_max: usize,
}

impl Default for LengthBounds {
    /// Returns bounds for fast to slow speech with frames of 10 ms: 2 to 30 frames per token, and 200 tokens.
    fn default() -> Self {
        Self { frames_per_token_min: 2.0, frames_per_token_max: 30.0, tokens_max: 200 }
    }
}

/// Extra frames that are always allowed in a generation, for the silence around an utterance.
const SPARE_FRAMES: f64 = 40.0;

impl LengthBounds {
    /// Checks that a text can be generated within the limits.
    pub(super) fn check(&self) -> Result<(), InvalidField> {
        let (least, most) = (self.frames_per_token_min, self.frames_per_token_max);
        require(least >= 0.0 && least <= most, "pace.fewest", least, format!("0 to `pace.most`, which is {most}"))?;
        require(most <= MAX_FRAMES_PER_TOKEN, "pace.most", most, format!("at most {MAX_FRAMES_PER_TOKEN}"))?;
        inside("pace.longest", self.tokens_max, 1..=MAX_VOCABULARY)
    }

    /// Computes the minimum and the maximum number of generated frames for a text of `tokens` tokens: half of the
    /// lowest length of training, and 1.5 times the highest length plus 40.
    pub fn frame_bounds(&self, tokens: usize) -> [usize; 2] {
        let tokens = tokens as f64;
        [
            (0.5 * self.frames_per_token_min * tokens) as usize,
            (1.5 * self.frames_per_token_max * tokens + SPARE_FRAMES) as usize,
        ]
    }
}

impl SynthesizerConfig {
    /// Returns the recommended configuration: text encoder and decoder have the same width and number of blocks
    /// (`layers`).
    pub fn recommended(features: usize, vocabulary: usize, width: usize, layers: usize) -> Self {
        let heads = (width / 64).max(4);
        Self {
            features,
            vocabulary,
            text_dim: width,
            text_layers: layers,
            text_heads: heads,
            voice: VoiceConfig {
                layers: 3,
                channels: width,
                speaker_dim: width,
                style_tokens: 10,
                style_dim: width,
                style_heads: heads,
                reference_frames: 160,
            },
            decoder_dim: width,
            decoder_layers: layers,
            decoder_heads: heads,
            feed_forward_multiplier: 4,
            prenet_dim: width,
            prenet_dropout: 0.5,
            postnet_layers: 3,
            postnet_channels: width,
            reduction: 3,
            length: LengthPolicy::Exact,
            dropout: 0.1,
            loss: LossConfig::default(),
            normalization: MelNormalization::default(),
            length_bounds: LengthBounds::default(),
        }
    }

    /// Computes the number of decoder steps that generate `frames` frames: the quotient by
    /// [`reduction`](Self::reduction), rounded up.
    pub fn steps(&self, frames: u32) -> u32 {
        frames.div_ceil(self.reduction as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `model.json` of runs and exported models keeps its field names, whatever the Rust fields are called.
    #[test]
    fn files_keep_their_field_names() {
        let config = SynthesizerConfig::recommended(80, 60, 64, 1);
        let written = serde_json::to_value(config).unwrap();
        assert_eq!(written["scale"], serde_json::json!({ "centre": -5.0, "spread": 2.5 }));
        assert_eq!(written["pace"], serde_json::json!({ "fewest": 2.0, "most": 30.0, "longest": 200 }));
        assert!(written.get("normalization").is_none() && written.get("length_bounds").is_none());
        assert_eq!(serde_json::from_value::<SynthesizerConfig>(written).unwrap(), config);
    }
}
