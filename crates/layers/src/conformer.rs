//! The macaron Conformer block.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Pass, remat_dense};

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
        let half = feed(&self.norm_first, &self.first, x.clone(), pass.with("first"), again);
        let x = x + half * 0.5;
        let seen = {
            let (lengths, within) = (lengths.clone(), pass.with("weights"));
            let part = part(&self.norm_attention, &self.attention);
            let inner = move |(norm, attention): &(LayerNorm, Attention), x| {
                attention.inner(normed(norm, x, &within), &lengths, &within)
            };
            ending(&part, x.clone(), inner, |part| part.1.last(), pass, again)
        };
        let x = x + pass.full(pass.with("attention").dropout(seen, self.dropout));
        let mixed = {
            let (lengths, within) = (lengths.clone(), pass.with("convolution"));
            let part = part(&self.norm_convolution, &self.convolution);
            let inner = move |(norm, convolution): &(LayerNorm, Convolution), x| {
                convolution.inner(normed(norm, x, &within), &lengths, &within)
            };
            ending(&part, x.clone(), inner, |part| part.1.last(), pass, again)
        };
        let x = x + pass.full(pass.with("convolution").dropout(mixed, self.dropout));
        let half = feed(&self.norm_second, &self.second, x.clone(), pass.with("second"), again);
        normed(&self.norm_last, x + half * 0.5, pass)
    }
}

/// A layer with the norm before it; both are handles to the same parameters.
fn part<L: Clone>(norm: &LayerNorm, layer: &L) -> (LayerNorm, L) {
    (norm.clone(), layer.clone())
}

fn feed(norm: &LayerNorm, layer: &FeedForward, x: Tensor<3>, pass: Pass, again: bool) -> Tensor<3> {
    let inner = {
        let pass = pass.clone();
        move |(norm, layer): &(LayerNorm, FeedForward), x| layer.inner(normed(norm, x, &pass), &pass)
    };
    let y = ending(&part(norm, layer), x, inner, |part| part.1.last(), &pass, again);
    pass.full(layer.end(y, &pass))
}

/// `inner` and then the layer that it ends in, with the inside kept or computed again.
fn ending<M: Module + Sync + 'static>(
    module: &M,
    x: Tensor<3>,
    inner: impl Fn(&M, Tensor<3>) -> Tensor<3> + Send + Sync + 'static,
    last: fn(&M) -> &Linear,
    pass: &Pass,
    again: bool,
) -> Tensor<3> {
    if again { remat_dense(module, x, inner, last, pass) } else { pass.dense(last(module), inner(module, x)) }
}
