//! What a synthesiser is built from.

use plimsoll_layers::{Distance, LengthPolicy};
use serde::{Deserialize, Serialize};

use crate::ModelKind;

/// The sizes of a [`Synthesizer`](super::Synthesizer).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SynthesizerConfig {
    /// Features of a frame.
    pub features: usize,
    /// Tokens that it knows.
    pub vocabulary: usize,
    /// Width of the text encoder.
    pub text_dim: usize,
    /// Blocks of the text encoder.
    pub text_layers: usize,
    /// Attention heads of the text encoder.
    pub text_heads: usize,
    /// What it hears of a voice.
    pub voice: VoiceConfig,
    /// Width of the decoder.
    pub decoder_dim: usize,
    /// Blocks of the decoder.
    pub decoder_layers: usize,
    /// Attention heads of the decoder.
    pub decoder_heads: usize,
    /// Width of the feed-forward layers, in multiples of the width around them.
    pub feed_forward_multiplier: usize,
    /// Width of the prenet.
    pub prenet_dim: usize,
    /// Share of the prenet's values dropped, in training and in synthesis.
    pub prenet_dropout: f64,
    /// Convolutions of the postnet; none where zero.
    pub postnet_layers: usize,
    /// Channels of the postnet.
    pub postnet_channels: usize,
    /// Frames that one step of the decoder says.
    pub reduction: usize,
    /// How attention deals with long utterances.
    pub length: LengthPolicy,
    /// Share of activations dropped in training.
    pub dropout: f64,
    /// What it learns by.
    pub loss: LossConfig,
    /// The features that it was built for.
    #[serde(rename = "scale")]
    pub normalization: MelNormalization,
    /// How fast its voices speak.
    #[serde(rename = "pace")]
    pub length_bounds: LengthBounds,
}

impl ModelKind for SynthesizerConfig {
    const KIND: &'static str = "tts";
    const NAME: &'static str = "a synthesiser";
}

/// The sizes of what a synthesiser hears of a voice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VoiceConfig {
    /// Convolutions over the reference.
    pub layers: usize,
    /// Their channels.
    pub channels: usize,
    /// Width of the vector that stands for a speaker.
    pub speaker_dim: usize,
    /// Styles that are learned; none where zero.
    pub style_tokens: usize,
    /// Width of a style.
    pub style_dim: usize,
    /// Heads of the attention to the styles.
    pub style_heads: usize,
    /// Frames of a reference at most.
    pub reference_frames: usize,
}

impl VoiceConfig {
    /// Width of all that is known of a voice.
    pub fn width(&self) -> usize {
        self.speaker_dim + if self.style_tokens > 0 { self.style_dim } else { 0 }
    }
}

/// What a synthesiser learns by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossConfig {
    /// How far a frame is from the true one.
    pub distance: Distance,
    /// How much stopping weighs beside the frames.
    pub stop_weight: f64,
    /// How much a stop weighs beside going on, which is seen far more often.
    pub stop_positive: f64,
    /// How much straying from the diagonal weighs; nothing where zero.
    pub guide_weight: f64,
    /// How broad the diagonal is, as a share of the whole.
    pub guide_sigma: f64,
}

impl Default for LossConfig {
    fn default() -> Self {
        Self { distance: Distance::L1, stop_weight: 1.0, stop_positive: 5.0, guide_weight: 1.0, guide_sigma: 0.2 }
    }
}

/// Where log-mels lie: a synthesiser computes with numbers around zero and about one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MelNormalization {
    /// Their mean over the training data.
    #[serde(rename = "centre")]
    pub mean: f32,
    /// Their standard deviation.
    #[serde(rename = "spread")]
    pub std: f32,
}

impl Default for MelNormalization {
    /// Log-mels of speech, about.
    fn default() -> Self {
        Self { mean: -5.0, std: 2.5 }
    }
}

/// How many frames a token takes, which keeps synthesis from stopping at once and from never stopping, and how many
/// tokens a text has.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthBounds {
    /// The fewest that a training utterance had for each of its tokens.
    #[serde(rename = "fewest")]
    pub frames_per_token_min: f64,
    /// The most.
    #[serde(rename = "most")]
    pub frames_per_token_max: f64,
    /// Tokens of the longest text in training: longer ones are said in parts.
    #[serde(rename = "longest")]
    pub tokens_max: usize,
}

impl Default for LengthBounds {
    /// Anything from hurried to slow speech in frames of 10 ms.
    fn default() -> Self {
        Self { frames_per_token_min: 2.0, frames_per_token_max: 30.0, tokens_max: 200 }
    }
}

/// Frames that are always allowed beyond the pace: the silence around an utterance.
const SPARE_FRAMES: f64 = 40.0;

impl LengthBounds {
    /// The fewest and the most frames that synthesis of so many tokens may have: half as fast again as anybody spoke,
    /// and half as slow.
    pub fn frame_bounds(&self, tokens: usize) -> [usize; 2] {
        let tokens = tokens as f64;
        [
            (0.5 * self.frames_per_token_min * tokens) as usize,
            (1.5 * self.frames_per_token_max * tokens + SPARE_FRAMES) as usize,
        ]
    }
}

impl SynthesizerConfig {
    /// A synthesiser with the text encoder and the decoder equally wide and deep, and the usual sizes of the rest.
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

    /// Steps of the decoder for so many frames.
    pub fn steps(&self, frames: u32) -> u32 {
        frames.div_ceil(self.reduction as u32)
    }
}
