//! The sizes of a recogniser, and the two families that are shipped.

use plimsoll_layers::{HeadPositions, LengthPolicy, NormKind};
use serde::{Deserialize, Serialize};

use crate::ModelKind;

/// The sizes of a [`Recognizer`](super::Recognizer).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecognizerConfig {
    /// Features of a frame.
    pub features: usize,
    /// Tokens, the blank and the decoder's start and end included.
    pub vocabulary: usize,
    /// Width of the model.
    pub d_model: usize,
    /// Conformer blocks.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Frames that the depthwise kernel spans, odd.
    pub kernel: usize,
    /// Width inside the feed-forward layers, as a multiple of `d_model`.
    pub feed_forward_multiplier: usize,
    /// How many frames become one: 2, 4 or 8 by convolutions, or 1 for a linear layer over every frame.
    pub subsampling: usize,
    /// Channels of the subsampling convolutions.
    pub subsampling_channels: usize,
    /// How the encoder knows positions.
    pub positions: HeadPositions,
    /// What the norm inside the convolutions takes its mean and variance over.
    pub norm: NormKind,
    /// Whether the encoder's input is scaled by the root of its width, as in the Transformer.
    pub scale_input: bool,
    /// How attention deals with long utterances, in frames after subsampling.
    pub length: LengthPolicy,
    /// Share of values dropped in training.
    pub dropout: f64,
    /// The attention decoder; CTC alone where there is none.
    pub decoder: Option<DecoderConfig>,
}

impl ModelKind for RecognizerConfig {
    const KIND: &'static str = "asr";
    const NAME: &'static str = "a recogniser";
}

/// The sizes of an attention decoder, and how its loss is mixed with that of CTC.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderConfig {
    /// Transformer blocks.
    pub layers: usize,
    /// Width inside the feed-forward layers, as a multiple of the model's.
    pub feed_forward_multiplier: usize,
    /// Whether norms stand first, with one more at the end, or after each residual.
    pub norm_first: bool,
    /// Share of CTC in the loss; the decoder's cross-entropy has the rest.
    pub ctc_weight: f64,
    /// Share of each label that is spread over the vocabulary.
    pub label_smoothing: f64,
}

impl RecognizerConfig {
    /// The family that is recommended: frames reduced by four, relative positions, layer norms, a pre-norm decoder.
    pub fn recommended(d_model: usize, layers: usize, decoder_layers: usize, vocabulary: usize) -> Self {
        Self {
            features: 80,
            vocabulary,
            d_model,
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

    /// KonkaniVani as it was published: every frame of 10 ms is kept, batch norms, a post-norm decoder.
    ///
    /// It is here for its sizes and to read its weights; its attention over 3,001 frames is what ran out of memory.
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
