//! The configuration of a recognizer, and the two families of sizes that are shipped.

use plimsoll_layers::{HeadPositions, LengthPolicy, NormKind, SubsamplingConfig};
use serde::{Deserialize, Serialize};

use crate::ModelKind;
use crate::check::{InvalidField, MAX_LAYERS, MAX_VOCABULARY, MAX_WIDTH, dropout, even, heads, inside, require};

/// The kind of the blocks of an encoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncoderKind {
    /// Conformer blocks: attention over all frames beside convolutions.
    #[default]
    Conformer,
    /// ConvNeXt blocks: convolutions alone. They learn more from few hours, in a fraction of the time, and need memory in
    /// proportion to the length.
    Convolution,
}

/// The configuration of a [`Recognizer`](super::Recognizer).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecognizerConfig {
    /// Features per frame: the number of mel bands.
    pub features: usize,
    /// Number of tokens, including the blank and the decoder's start and end tokens.
    pub vocabulary: usize,
    /// Model width: the size of each frame's vector between blocks.
    pub d_model: usize,
    /// Kind of the blocks in the encoder. Models of older versions do not name it: they have Conformer blocks.
    #[serde(default)]
    pub encoder: EncoderKind,
    /// Number of blocks in the encoder.
    pub layers: usize,
    /// Number of attention heads of encoder and decoder. `d_model` must be a multiple of this number.
    pub heads: usize,
    /// Width of the depthwise convolution in frames; odd.
    pub kernel: usize,
    /// Inner width of the encoder's feed-forward layers, as a multiple of `d_model`.
    pub feed_forward_multiplier: usize,
    /// Input frames per encoder frame: 2, 4 or 8 by strided convolutions, or 1 for a linear layer over every frame.
    pub subsampling: usize,
    /// Channels of the subsampling convolutions. Not used when `subsampling` is 1.
    pub subsampling_channels: usize,
    /// Position encoding of the encoder. Only attention needs positions, so encoders of convolutions have none.
    pub positions: HeadPositions,
    /// The norm inside the convolution module: over a frame (layer norm) or over the batch (batch norm).
    pub norm: NormKind,
    /// Whether the encoder's input is multiplied by the square root of `d_model`, as in the Transformer. Encoders of
    /// convolutions do not.
    pub scale_input: bool,
    /// Policy of attention for long utterances; its lengths are in frames after subsampling.
    pub length: LengthPolicy,
    /// Dropout rate in training, from 0 to 1.
    pub dropout: f64,
    /// The attention decoder. With `None` the model has CTC only.
    pub decoder: Option<DecoderConfig>,
}

impl ModelKind for RecognizerConfig {
    const KIND: &'static str = "asr";
    const NAME: &'static str = "a recognizer";

    fn check(&self) -> Result<(), InvalidField> {
        inside("features", self.features, 1..=MAX_WIDTH)?;
        inside("vocabulary", self.vocabulary, 1..=MAX_VOCABULARY)?;
        heads(("d_model", self.d_model), ("heads", self.heads))?;
        even("d_model", self.d_model)?;
        if self.positions == HeadPositions::Rotary {
            let width = self.d_model / self.heads;
            require(width.is_multiple_of(2), "heads", self.heads, "heads of an even width for rotary positions")?;
        }
        inside("layers", self.layers, 1..=MAX_LAYERS)?;
        inside("kernel", self.kernel, 1..=MAX_WIDTH)?;
        require(!self.kernel.is_multiple_of(2), "kernel", self.kernel, "an odd number")?;
        inside("feed_forward_multiplier", self.feed_forward_multiplier, 1..=MAX_LAYERS)?;
        require([1, 2, 4, 8].contains(&self.subsampling), "subsampling", self.subsampling, "1, 2, 4 or 8")?;
        inside("subsampling_channels", self.subsampling_channels, 1..=MAX_WIDTH)?;
        if self.subsampling > 1 {
            let least = SubsamplingConfig::features_min(self.subsampling);
            inside("features", self.features, least..=MAX_WIDTH)?;
        }
        if let NormKind::Group(groups) = self.norm {
            let fits = groups > 0 && self.d_model.is_multiple_of(groups);
            require(fits, "norm", groups, "a number of groups that divides `d_model`")?;
        }
        dropout("dropout", self.dropout)?;
        let Some(DecoderConfig { layers, feed_forward_multiplier, ctc_weight, label_smoothing, norm_first: _ }) =
            self.decoder
        else {
            return Ok(());
        };
        inside("decoder.layers", layers, 1..=MAX_LAYERS)?;
        inside("decoder.feed_forward_multiplier", feed_forward_multiplier, 1..=MAX_LAYERS)?;
        require((0.0..=1.0).contains(&ctc_weight), "decoder.ctc_weight", ctc_weight, "0 to 1")?;
        dropout("decoder.label_smoothing", label_smoothing)
    }

    fn input_sizes(&self) -> (usize, usize) {
        (self.features, self.vocabulary)
    }
}

/// The configuration of an attention decoder, and how its loss is combined with CTC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// Number of Transformer decoder blocks.
    pub layers: usize,
    /// Inner width of the decoder's feed-forward layers, as a multiple of `d_model`.
    pub feed_forward_multiplier: usize,
    /// Place of the decoder's norms: pre-norm with a final norm (`true`), or post-norm after each residual (`false`).
    pub norm_first: bool,
    /// Weight of CTC in the loss, from 0 to 1. The decoder's cross-entropy has the rest.
    pub ctc_weight: f64,
    /// Label smoothing: the share of each target that is spread evenly over the vocabulary, from 0 to 1.
    pub label_smoothing: f64,
}

impl RecognizerConfig {
    /// Returns whether the loss has a CTC part. CTC needs one frame for each token and one between equal tokens; without
    /// CTC, utterances may be shorter.
    pub fn needs_ctc(&self) -> bool {
        self.decoder.is_none_or(|decoder| decoder.ctc_weight > 0.0)
    }

    /// Returns the recommended configuration: subsampling by four, relative positions, layer norms, a pre-norm decoder.
    pub fn recommended(d_model: usize, layers: usize, decoder_layers: usize, vocabulary: usize) -> Self {
        Self {
            features: 80,
            vocabulary,
            d_model,
            encoder: EncoderKind::Conformer,
            layers,
            heads: 4,
            kernel: 31,
            feed_forward_multiplier: 4,
            subsampling: 4,
            subsampling_channels: d_model,
            positions: HeadPositions::Relative,
            norm: NormKind::Layer,
            scale_input: true,
            length: LengthPolicy::Exact,
            dropout: 0.1,
            decoder: Some(DecoderConfig {
                layers: decoder_layers,
                feed_forward_multiplier: 4,
                norm_first: true,
                ctc_weight: 0.3,
                label_smoothing: 0.1,
            }),
        }
    }

    /// Returns the published configuration of KonkaniVani: no subsampling (every 10 ms frame is kept), batch norms, a
    /// post-norm decoder.
    ///
    /// Use it to compare sizes and to load published weights. For new models prefer [`recommended`](Self::recommended):
    /// attention over the 3,001 frames of 30 s ran out of memory with this configuration.
    pub fn konkani(d_model: usize, layers: usize, decoder_layers: usize, vocabulary: usize) -> Self {
        let decoder = DecoderConfig {
            layers: decoder_layers,
            feed_forward_multiplier: 4,
            norm_first: false,
            ctc_weight: 0.3,
            label_smoothing: 0.0,
        };
        Self {
            subsampling: 1,
            positions: HeadPositions::Absolute,
            norm: NormKind::Batch,
            scale_input: false,
            decoder: Some(decoder),
            ..Self::recommended(d_model, layers, decoder_layers, vocabulary)
        }
    }
}
