//! The configuration of a parallel synthesizer.

use plimsoll_audio::MelAxis;
use plimsoll_layers::Distance;
use serde::{Deserialize, Serialize};

use crate::ModelKind;
use crate::check::{
    InvalidField, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, dropout, inside, not_negative, positive, require,
};
use crate::tts::{LengthBounds, MelNormalization, VoiceConfig};

/// The configuration of a [`ParallelSynthesizer`](super::ParallelSynthesizer).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParallelConfig {
    /// Features per frame: the number of mel bands.
    pub features: usize,
    /// Number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// Width of the text encoder.
    pub text_dim: usize,
    /// Number of blocks of the text encoder.
    pub text_layers: usize,
    /// Number of tokens under the convolution of a text block; odd.
    pub text_kernel: usize,
    /// Configuration of the voice encoder.
    pub voice: VoiceConfig,
    /// Whether the voice reaches durations, prosody and each block of the frame decoder by ways of its own, and not only through the text: for
    /// many voices. In a model that knows pitch, the pitch of the reference is a value of the voice, too, and predicted pitches are relative to it.
    #[serde(default)]
    pub voice_links: bool,
    /// Width of the frame decoder.
    pub decoder_dim: usize,
    /// Number of blocks of the frame decoder; at least 1.
    pub decoder_layers: usize,
    /// Number of frames under the convolution of a decoder block; odd.
    pub decoder_kernel: usize,
    /// Inner width of the feed-forward layers, as a multiple of their block's width.
    pub feed_forward_multiplier: usize,
    /// Number of learned values that say how a token is spoken; 0 for a model without them.
    #[serde(default)]
    pub prosody_dim: usize,
    /// Axis of the features, for a model in which each token has a pitch and an energy that can be changed; `None` for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pitch: Option<MelAxis>,
    /// Whether the decoder gets the harmonics of each token's pitch, and not only a number; only in a model that knows pitch.
    #[serde(default)]
    pub pitch_harmonics: bool,
    /// Standard deviation of the noise on learned values of prosody in training; that on pitch and energy is a part of it.
    #[serde(default)]
    pub prosody_noise: f64,
    /// Dropout rate in training, from 0 to 1.
    pub dropout: f64,
    /// Settings of the training loss.
    pub loss: ParallelLossConfig,
    /// Mean and standard deviation of the training features.
    pub normalization: MelNormalization,
    /// Limits of the generated length, taken from the training data.
    pub length_bounds: LengthBounds,
}

/// Settings of the training loss, a sum of terms for the frames, the prior of each token, and durations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParallelLossConfig {
    /// Distance measure between a generated frame and the true frame.
    pub distance: Distance,
    /// Weight of the squared distance between a frame and the prior of its token. The alignment is learned by it.
    pub prior_weight: f64,
    /// Weight of the error of each token's duration: the deviance of Poisson.
    pub duration_weight: f64,
    /// Weight of the squared error of the predicted prosody.
    #[serde(default = "one")]
    pub prosody_weight: f64,
}

fn one() -> f64 {
    1.0
}

impl Default for ParallelLossConfig {
    fn default() -> Self {
        Self { distance: Distance::L1, prior_weight: 0.5, duration_weight: 1.0, prosody_weight: 1.0 }
    }
}

impl ModelKind for ParallelConfig {
    const KIND: &'static str = "parallel_tts";
    const NAME: &'static str = "a parallel synthesizer";

    fn check(&self) -> Result<(), InvalidField> {
        inside("features", self.features, 1..=MAX_WIDTH)?;
        inside("vocabulary", self.vocabulary, 1..=MAX_VOCABULARY)?;
        for (field, width) in [("text_dim", self.text_dim), ("decoder_dim", self.decoder_dim)] {
            inside(field, width, 1..=MAX_WIDTH)?;
        }
        for (field, layers) in [("text_layers", self.text_layers), ("decoder_layers", self.decoder_layers)] {
            inside(field, layers, 1..=MAX_LAYERS)?;
        }
        for (field, kernel) in [("text_kernel", self.text_kernel), ("decoder_kernel", self.decoder_kernel)] {
            inside(field, kernel, 1..=MAX_LAYERS)?;
            require(!kernel.is_multiple_of(2), field, kernel, "an odd number")?;
        }
        self.voice.check()?;
        inside("feed_forward_multiplier", self.feed_forward_multiplier, 1..=MAX_LAYERS)?;
        dropout("dropout", self.dropout)?;
        not_negative("prosody_noise", self.prosody_noise)?;
        let ParallelLossConfig { distance: _, prior_weight, duration_weight, prosody_weight } = self.loss;
        positive("loss.prior_weight", prior_weight)?;
        not_negative("loss.duration_weight", duration_weight)?;
        not_negative("loss.prosody_weight", prosody_weight)?;
        inside("prosody_dim", self.prosody_dim, 0..=MAX_WIDTH)?;
        if let Some(axis) = &self.pitch {
            require(axis.n_mels == self.features, "pitch.n_mels", axis.n_mels, "the number of features")?;
            require(
                axis.has_pitch(),
                "pitch",
                axis.n_mels,
                "the number of bands of features in which pitch can be found",
            )?;
        }
        require(
            !self.pitch_harmonics || self.pitch.is_some(),
            "pitch_harmonics",
            "true",
            "false in a model without pitch",
        )?;
        self.normalization.check()?;
        self.length_bounds.check()
    }

    fn input_sizes(&self) -> (usize, usize) {
        (self.features, self.vocabulary)
    }
}

impl ParallelConfig {
    /// Returns the number of values that say how a token is spoken: pitch and energy, if the model has them, and the learned ones.
    pub fn prosody_width(&self) -> usize {
        self.prosody_dim + if self.pitch.is_some() { 2 } else { 0 }
    }

    /// Returns whether the pitch of a reference is a value of its voice: in a model of many voices that knows pitch.
    pub(super) fn voice_has_pitch(&self) -> bool {
        self.voice_links && self.pitch.is_some()
    }

    /// Returns the width of an encoded voice.
    pub fn voice_width(&self) -> usize {
        self.voice.width() + usize::from(self.voice_has_pitch())
    }

    /// Returns the recommended configuration: text encoder and frame decoder have the same width and number of blocks
    /// (`layers`).
    pub fn recommended(features: usize, vocabulary: usize, width: usize, layers: usize) -> Self {
        Self {
            features,
            vocabulary,
            text_dim: width,
            text_layers: layers,
            text_kernel: 5,
            voice: VoiceConfig {
                layers: 3,
                channels: width,
                speaker_dim: width,
                style_tokens: 0,
                style_dim: width,
                style_heads: 1,
                reference_frames: 160,
            },
            voice_links: false,
            decoder_dim: width,
            decoder_layers: layers,
            decoder_kernel: 7,
            feed_forward_multiplier: 4,
            prosody_dim: 0,
            pitch: None,
            pitch_harmonics: false,
            prosody_noise: 0.6,
            dropout: 0.1,
            loss: ParallelLossConfig::default(),
            normalization: MelNormalization::default(),
            length_bounds: LengthBounds::default(),
        }
    }
}
