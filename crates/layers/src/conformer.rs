//! The macaron Conformer block.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;

use crate::branch::normed_branch;
use crate::{
    Activation, Attention, AttentionConfig, Convolution, ConvolutionConfig, FeedForward, FeedForwardConfig,
    HeadPositions, Lengths, NormKind, normed,
};

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
    /// What attention itself knows of positions.
    pub positions: HeadPositions,
    /// What the norm inside the convolution takes its mean and variance over.
    pub norm: NormKind,
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
    /// A block of width `d_model` with a kernel of 15 frames, four times the width inside, layer norms, absolute
    /// positions and a dropout of 0.1.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self {
            d_model,
            heads,
            kernel: 15,
            feed_forward_multiplier: 4,
            positions: HeadPositions::Absolute,
            norm: NormKind::Layer,
            dropout: 0.1,
        }
    }

    /// A block on `device`.
    pub fn init(&self, device: &Device) -> Conformer {
        let &Self { d_model, heads, kernel, positions, norm: kind, dropout, .. } = self;
        let norm = || LayerNormConfig::new(d_model).init(device);
        let inner = d_model * self.feed_forward_multiplier;
        let feed_forward = || FeedForwardConfig { d_model, inner, activation: Activation::Silu, dropout }.init(device);
        Conformer {
            norm_first: norm(),
            first: feed_forward(),
            norm_attention: norm(),
            attention: AttentionConfig { d_model, heads, dropout, positions, causal: false }.init(device),
            norm_convolution: norm(),
            convolution: ConvolutionConfig { d_model, kernel, norm: kind, dropout }.init(device),
            norm_second: norm(),
            second: feed_forward(),
            norm_last: norm(),
            dropout,
        }
    }
}

impl Conformer {
    /// `[b, t, d]` to `[b, t, d]`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        self.run(x, lengths, pass, false)
    }

    /// The same to the last bit, keeping the input of each of its four parts alone: their inside is computed a second
    /// time in the backward pass, but for the product that each ends in.
    pub fn rematerialised(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        self.run(x, lengths, pass, true)
    }

    fn run(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass, again: bool) -> Tensor<3> {
        let [first, second] = [pass.with("first"), pass.with("second")];
        let half = normed_branch(&self.norm_first, &self.first, x.clone(), lengths, &first, again);
        let x = x + pass.full(self.first.end(half, &first)) * 0.5;
        let seen =
            normed_branch(&self.norm_attention, &self.attention, x.clone(), lengths, &pass.with("weights"), again);
        let x = x + pass.full(pass.with("attention").dropout(seen, self.dropout));
        let convolution = pass.with("convolution");
        let mixed = normed_branch(&self.norm_convolution, &self.convolution, x.clone(), lengths, &convolution, again);
        let x = x + pass.full(convolution.dropout(mixed, self.dropout));
        let half = normed_branch(&self.norm_second, &self.second, x.clone(), lengths, &second, again);
        normed(&self.norm_last, x + pass.full(self.second.end(half, &second)) * 0.5, pass)
    }
}
