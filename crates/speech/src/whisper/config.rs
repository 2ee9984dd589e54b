//! The configuration of Whisper, and its published sizes.

use plimsoll_layers::LengthPolicy;
use plimsoll_text::Tokenizer;
use serde::{Deserialize, Serialize};

use crate::ModelKind;
use crate::check::{InvalidField, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, dropout, even, heads, inside, require};

/// Ids of a tokenizer before its first text token.
pub(super) const RESERVED: usize = Tokenizer::RESERVED_IDS;

/// The configuration of a [`Whisper`](super::Whisper).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhisperConfig {
    /// Features per frame: the number of mel bands.
    pub features: usize,
    /// Number of tokens, including the four reserved ids of a [`Tokenizer`].
    pub vocabulary: usize,
    /// Width of encoder and decoder.
    pub d_model: usize,
    /// Number of attention heads of encoder and decoder. `d_model` must be a multiple of this number.
    pub heads: usize,
    /// Number of blocks in the encoder.
    pub encoder_layers: usize,
    /// Number of blocks in the decoder.
    pub decoder_layers: usize,
    /// Inner width of the feed-forward layers, as a multiple of `d_model`.
    pub feed_forward_multiplier: usize,
    /// Number of positions of the encoder: half of the frames that it reads. Shorter utterances are filled up with silence.
    pub positions: usize,
    /// Number of positions of the decoder: most tokens of a text, with those that begin it.
    pub text_positions: usize,
    /// Policy of attention in the encoder.
    pub length: LengthPolicy,
    /// Dropout rate in training, from 0 to 1.
    pub dropout: f64,
}

impl WhisperConfig {
    /// Names of the published sizes that [`named`](Self::named) knows.
    pub const NAMES: [&str; 7] = ["tiny", "base", "small", "medium", "large", "large-v3", "turbo"];

    /// Returns the configuration of the published size `name`, for many languages; `None` for an unknown name. The models for English
    /// alone have one token less.
    ///
    /// ```
    /// use plimsoll_speech::whisper::WhisperConfig;
    ///
    /// let small = WhisperConfig::named("small").expect("a published size");
    /// assert_eq!((small.d_model, small.encoder_layers), (768, 12));
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        let (d_model, heads, encoder_layers, decoder_layers) = match name {
            "tiny" => (384, 6, 4, 4),
            "base" => (512, 8, 6, 6),
            "small" => (768, 12, 12, 12),
            "medium" => (1024, 16, 24, 24),
            "large" | "large-v3" => (1280, 20, 32, 32),
            "turbo" => (1280, 20, 32, 4),
            _ => return None,
        };
        let is_third = ["large-v3", "turbo"].contains(&name);
        Some(Self {
            features: if is_third { 128 } else { 80 },
            vocabulary: RESERVED + if is_third { 51_866 } else { 51_865 },
            d_model,
            heads,
            encoder_layers,
            decoder_layers,
            feed_forward_multiplier: 4,
            positions: 1500,
            text_positions: 448,
            length: LengthPolicy::Exact,
            dropout: 0.0,
        })
    }

    /// Returns the number of frames that the encoder reads.
    pub fn frames(&self) -> usize {
        2 * self.positions
    }

    /// Returns the number of rows of the table of tokens: those of the tokenizer's file.
    pub(super) fn rows(&self) -> usize {
        self.vocabulary - RESERVED
    }
}

impl ModelKind for WhisperConfig {
    const KIND: &'static str = "whisper";
    const NAME: &'static str = "a Whisper model";

    fn check(&self) -> Result<(), InvalidField> {
        inside("features", self.features, 1..=MAX_WIDTH)?;
        inside("vocabulary", self.vocabulary, RESERVED + 1..=MAX_VOCABULARY)?;
        heads(("d_model", self.d_model), ("heads", self.heads))?;
        even("d_model", self.d_model)?;
        require(self.d_model > 2, "d_model", self.d_model, "at least 4")?;
        inside("encoder_layers", self.encoder_layers, 1..=MAX_LAYERS)?;
        inside("decoder_layers", self.decoder_layers, 1..=MAX_LAYERS)?;
        inside("feed_forward_multiplier", self.feed_forward_multiplier, 1..=MAX_LAYERS)?;
        inside("positions", self.positions, 1..=MAX_WIDTH)?;
        inside("text_positions", self.text_positions, 2..=MAX_WIDTH)?;
        let is_whole = !matches!(self.length, LengthPolicy::Truncate(_));
        require(is_whole, "length", "truncate", "exact or chunked attention: `positions` says how much is heard")?;
        dropout("dropout", self.dropout)
    }

    fn input_sizes(&self) -> (usize, usize) {
        (self.features, self.vocabulary)
    }
}
