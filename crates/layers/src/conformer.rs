//! The macaron Conformer block.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Noise;

use crate::{Attention, AttentionConfig, Convolution, ConvolutionConfig, FeedForward, FeedForwardConfig, Lengths};

/// How to build a [`Conformer`] block.
#[derive(Clone, Copy, Debug)]
pub struct ConformerConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Attention heads.
    pub heads: usize,
    /// Frames that the depthwise kernel spans, odd.
    pub kernel: usize,
    /// Width inside the feed-forward layers, as a multiple of the model's.
    pub feed_forward_multiplier: usize,
    /// Share of values dropped in training.
    pub dropout: f64,
}

/// Half a feed-forward, attention, convolution, half a feed-forward, a norm; each behind a norm and beside a residual.
#[derive(Module, Debug)]
pub struct Conformer {
    norm_first: LayerNorm,
    first: FeedForward,
    norm_attention: LayerNorm,
    attention: Attention,
    norm_convolution: LayerNorm,
    convolution: Convolution,
    norm_second: LayerNorm,
    second: FeedForward,
    norm_last: LayerNorm,
    dropout: f64,
}

impl ConformerConfig {
    /// A block of width `d_model` with a kernel of 15 frames, four times the width inside, a dropout of 0.1.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self { d_model, heads, kernel: 15, feed_forward_multiplier: 4, dropout: 0.1 }
    }

    /// A block on `device`.
    pub fn init(&self, device: &Device) -> Conformer {
        let &Self { d_model, heads, kernel, dropout, .. } = self;
        let norm = || LayerNormConfig::new(d_model).init(device);
        let inner = d_model * self.feed_forward_multiplier;
        let feed_forward = || FeedForwardConfig { d_model, inner, dropout }.init(device);
        Conformer {
            norm_first: norm(),
            first: feed_forward(),
            norm_attention: norm(),
            attention: AttentionConfig { d_model, heads, dropout }.init(device),
            norm_convolution: norm(),
            convolution: ConvolutionConfig { d_model, kernel, dropout }.init(device),
            norm_second: norm(),
            second: feed_forward(),
            norm_last: norm(),
            dropout,
        }
    }
}

impl Conformer {
    /// `[b, t, d]` to `[b, t, d]`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, noise: &Noise) -> Tensor<3> {
        let half = self.first.forward(self.norm_first.forward(x.clone()), &noise.with("first"));
        let x = x + half * 0.5;
        let seen = self.attention.forward(self.norm_attention.forward(x.clone()), lengths, &noise.with("weights"));
        let x = x + noise.with("attention").dropout(seen, self.dropout);
        let mixed = self.norm_convolution.forward(x.clone());
        let x = x + self.convolution.forward(mixed, lengths, &noise.with("convolution"));
        let half = self.second.forward(self.norm_second.forward(x.clone()), &noise.with("second"));
        self.norm_last.forward(x + half * 0.5)
    }
}
