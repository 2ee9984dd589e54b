//! Transformer blocks: an encoder's and a decoder's, with their norms before or after.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;

use crate::{
    Activation, Attention, AttentionConfig, CrossAttention, CrossAttentionConfig, CrossMemory, FeedForward,
    FeedForwardConfig, Guide, HeadPositions, KeyValues, Lengths, normed,
};

// Shapes: b batch, t frames, u tokens, d model width, m memory width.

/// How to build an [`EncoderBlock`] or a [`DecoderBlock`].
#[derive(Clone, Copy, Debug)]
pub struct TransformerConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Width of the memory that a decoder asks.
    pub d_memory: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width inside the feed-forward layer.
    pub inner: usize,
    /// What stands inside the feed-forward layer.
    pub activation: Activation,
    /// What self-attention knows of positions.
    pub positions: HeadPositions,
    /// Whether norms stand before what they serve (Xiong et al. 2020), or after the residual (Vaswani et al. 2017).
    pub norm_first: bool,
    /// Share of values dropped in training.
    pub dropout: f64,
}

impl TransformerConfig {
    /// Blocks of width `d_model`, four times as wide inside, with ReLU, norms first and a dropout of 0.1.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self {
            d_model,
            d_memory: d_model,
            heads,
            inner: 4 * d_model,
            activation: Activation::Relu,
            positions: HeadPositions::Absolute,
            norm_first: true,
            dropout: 0.1,
        }
    }

    fn norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.d_model).init(device)
    }

    fn attention(&self, causal: bool, device: &Device) -> Attention {
        let &Self { d_model, heads, dropout, positions, .. } = self;
        AttentionConfig { d_model, heads, dropout, positions, causal }.init(device)
    }

    fn feed_forward(&self, device: &Device) -> FeedForward {
        let &Self { d_model, inner, activation, dropout, .. } = self;
        FeedForwardConfig { d_model, inner, activation, dropout }.init(device)
    }

    /// An encoder block on `device`.
    pub fn encoder(&self, device: &Device) -> EncoderBlock {
        EncoderBlock {
            norm_attention: self.norm(device),
            attention: self.attention(false, device),
            norm_feed_forward: self.norm(device),
            feed_forward: self.feed_forward(device),
            norm_first: self.norm_first,
            dropout: self.dropout,
        }
    }

    /// A decoder block on `device`.
    pub fn decoder(&self, device: &Device) -> DecoderBlock {
        let &Self { d_model, d_memory, heads, dropout, norm_first, .. } = self;
        DecoderBlock {
            norm_self: self.norm(device),
            attention: self.attention(true, device),
            norm_cross: self.norm(device),
            cross: CrossAttentionConfig { d_model, d_memory, heads, dropout }.init(device),
            norm_feed_forward: self.norm(device),
            feed_forward: self.feed_forward(device),
            norm_first,
            dropout,
        }
    }
}

/// `x` with what `inside` makes of it, and a norm before that or behind the sum.
fn residual(
    norm: &LayerNorm,
    first: bool,
    x: Tensor<3>,
    pass: &Pass,
    inside: impl FnOnce(Tensor<3>) -> Tensor<3>,
) -> Tensor<3> {
    if first {
        return x.clone() + pass.full(inside(normed(norm, x, pass)));
    }
    let sum = x.clone() + pass.full(inside(x));
    normed(norm, sum, pass)
}

/// Attention over everything, then a feed-forward layer.
#[derive(Module, Debug)]
pub struct EncoderBlock {
    norm_attention: LayerNorm,
    attention: Attention,
    norm_feed_forward: LayerNorm,
    feed_forward: FeedForward,
    norm_first: bool,
    dropout: f64,
}

impl EncoderBlock {
    /// `[b, t, d]` to `[b, t, d]`.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let x = residual(&self.norm_attention, self.norm_first, x, pass, |x| {
            let seen = self.attention.forward(x, lengths, &pass.with("weights"));
            pass.with("attention").dropout(seen, self.dropout)
        });
        residual(&self.norm_feed_forward, self.norm_first, x, pass, |x| {
            self.feed_forward.forward(x, &pass.with("feed forward"))
        })
    }
}

/// Attention over what came before, attention to a memory, then a feed-forward layer.
#[derive(Module, Debug)]
pub struct DecoderBlock {
    norm_self: LayerNorm,
    attention: Attention,
    norm_cross: LayerNorm,
    cross: CrossAttention,
    norm_feed_forward: LayerNorm,
    feed_forward: FeedForward,
    norm_first: bool,
    dropout: f64,
}

/// What a decoder block remembers while its sequences grow.
#[derive(Clone, Debug)]
pub struct DecoderCache {
    seen: KeyValues,
    memory: CrossMemory,
}

impl DecoderCache {
    /// Keeps the sequences numbered in `rows`, in that order; a number may come more than once.
    pub fn select(&mut self, rows: &[usize]) {
        self.seen.select(rows);
        self.memory.select(rows);
    }

    /// How many tokens it has seen.
    pub fn seen(&self) -> usize {
        self.seen.len()
    }
}

impl DecoderBlock {
    /// Tokens `[b, u, d]`, none of which sees a later one, beside a memory `[b, t, m]`.
    pub fn forward(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        pass: &Pass,
    ) -> Tensor<3> {
        self.over(x, lengths, memory, memory_lengths, pass, |x, memory, pass| (self.cross.ask(x, memory, pass), ())).0
    }

    /// The same, and how far it looked from where `guide` would, the sum over all valid tokens.
    pub fn forward_guided(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        guide: &Guide,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<1>) {
        self.over(x, lengths, memory, memory_lengths, pass, |x, memory, pass| {
            self.cross.ask_guided(x, memory, guide, pass)
        })
    }

    /// The same, and the weights `[b, h, u, t]` by which each token looks at the memory: for pictures, as they are large.
    pub fn forward_watched(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<4>) {
        self.over(x, lengths, memory, memory_lengths, pass, |x, memory, pass| {
            let weights = self.cross.weights(x.clone(), memory, pass);
            (self.cross.ask(x, memory, pass), weights)
        })
    }

    /// All tokens at once over a memory that is asked by `ask`, which may say something beside.
    fn over<R>(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        pass: &Pass,
        ask: impl FnOnce(Tensor<3>, &CrossMemory, &Pass) -> (Tensor<3>, R),
    ) -> (Tensor<3>, R) {
        let memory = self.cross.look(memory, memory_lengths, pass);
        let attend = |x| self.attention.forward(x, lengths, &pass.with("weights"));
        let mut beside = None;
        let y = self.through(x, pass, attend, |x, pass| {
            let (asked, more) = ask(x, &memory, pass);
            beside = Some(more);
            asked
        });
        (y, beside.expect("the memory was asked"))
    }

    /// What it needs to go on token by token over `memory` `[b, t, m]`.
    pub fn cache(&self, memory: Tensor<3>, lengths: &Lengths, pass: &Pass) -> DecoderCache {
        DecoderCache { seen: KeyValues::default(), memory: self.cross.look(memory, lengths, pass) }
    }

    /// The next tokens `[b, u, d]` after those in `cache`.
    pub fn extend(&self, x: Tensor<3>, cache: &mut DecoderCache, pass: &Pass) -> Tensor<3> {
        let DecoderCache { seen, memory } = cache;
        let attend = |x| self.attention.extend(x, seen, &pass.with("weights"));
        self.through(x, pass, attend, |x, pass| self.cross.ask(x, memory, pass))
    }

    fn through(
        &self,
        x: Tensor<3>,
        pass: &Pass,
        attend: impl FnOnce(Tensor<3>) -> Tensor<3>,
        ask: impl FnOnce(Tensor<3>, &Pass) -> Tensor<3>,
    ) -> Tensor<3> {
        let x = residual(&self.norm_self, self.norm_first, x, pass, |x| {
            pass.with("attention").dropout(attend(x), self.dropout)
        });
        let x = residual(&self.norm_cross, self.norm_first, x, pass, |x| {
            let asked = ask(x, &pass.with("cross weights"));
            pass.with("cross").dropout(asked, self.dropout)
        });
        residual(&self.norm_feed_forward, self.norm_first, x, pass, |x| {
            self.feed_forward.forward(x, &pass.with("feed forward"))
        })
    }
}
