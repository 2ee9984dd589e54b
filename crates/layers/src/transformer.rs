//! Transformer encoder and decoder blocks, pre-norm or post-norm.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::epilogue::Epilogue;

use crate::branch::Branch;
use crate::norm::{dense_then_norm, layer_norm_beside};
use crate::{
    Activation, Attention, AttentionConfig, CrossAttention, CrossAttentionConfig, CrossMemory, FeedForward,
    FeedForwardConfig, GuidedAttention, HeadPositions, KeyValueCache, Lengths, apply_layer_norm,
};

// Shapes: b batch, t frames, u tokens, d model width, m memory width.

/// Configuration of an [`EncoderBlock`] or a [`DecoderBlock`].
#[derive(Clone, Copy, Debug)]
pub struct TransformerConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Width of the memory of a decoder block. Default: `d_model`.
    pub d_memory: usize,
    /// Number of attention heads. Must divide `d_model`.
    pub heads: usize,
    /// Inner width of the feed-forward layer. Default: `4 * d_model`.
    pub inner: usize,
    /// Activation of the feed-forward layer. Default: ReLU.
    pub activation: Activation,
    /// Position information that self-attention adds. Default: absolute.
    pub positions: HeadPositions,
    /// Whether the norm comes before each layer: true for pre-norm (Xiong et al. 2020), false for post-norm (Vaswani et
    /// al. 2017). Default: true.
    pub norm_first: bool,
    /// Dropout probability in training, in `[0, 1)`. Default: 0.1.
    pub dropout: f64,
}

impl TransformerConfig {
    /// Creates the configuration of blocks of width `d_model` with `heads` attention heads and the defaults of the
    /// other fields.
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

    /// Builds an encoder block on `device`.
    ///
    /// # Panics
    /// If `heads` does not divide `d_model`.
    pub fn init_encoder(&self, device: &Device) -> EncoderBlock {
        EncoderBlock {
            norm_attention: self.norm(device),
            attention: self.attention(false, device),
            norm_feed_forward: self.norm(device),
            feed_forward: self.feed_forward(device),
            norm_first: self.norm_first,
            dropout: self.dropout,
        }
    }

    /// Builds a decoder block on `device`.
    ///
    /// # Panics
    /// If `heads` does not divide `d_model`.
    pub fn init_decoder(&self, device: &Device) -> DecoderBlock {
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

/// Returns the sum with `x`, as what follows a layer.
fn onto(x: Tensor<3>) -> Epilogue {
    Epilogue { residual: Some((x, 1.0)), ..Epilogue::default() }
}

/// Applies the layer `inside` to `x` with a residual connection around it, and `norm` after the sum. The layer ends by what it is
/// given: the sum.
fn post_normed(
    norm: &LayerNorm,
    x: Tensor<3>,
    pass: &Pass,
    inside: impl FnOnce(Tensor<3>, Epilogue) -> Tensor<3>,
) -> Tensor<3> {
    let end = onto(x.clone());
    apply_layer_norm(norm, inside(x, end), pass)
}

/// Transformer encoder block: self-attention, then a feed-forward layer. Equals PyTorch's `TransformerEncoderLayer`.
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
    /// Applies the block: `[b, t, d]` to `[b, t, d]`. Padding changes no valid frame; output frames in the padding have
    /// no meaning.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        if self.norm_first {
            let (normed, x) = layer_norm_beside(&self.norm_attention, x, pass);
            let y = self.attention.before_output(normed, lengths, &pass.with("weights"));
            let (own, next) = (pass.with("attention"), (&self.norm_feed_forward, true));
            let end = Epilogue { dropout: self.dropout, ..onto(x) };
            let (normed, x) = dense_then_norm(self.attention.output_layer(), y, end, &own, next);
            return self.feed_forward.forward_into(normed, &pass.with("feed forward"), onto(x));
        }
        let x = post_normed(&self.norm_attention, x, pass, |x, end| {
            let mixed = self.attention.before_output(x, lengths, &pass.with("weights"));
            let end = Epilogue { dropout: self.dropout, ..end };
            pass.with("attention").dense_into(self.attention.output_layer(), mixed, end)
        });
        post_normed(&self.norm_feed_forward, x, pass, |x, end| {
            self.feed_forward.forward_into(x, &pass.with("feed forward"), end)
        })
    }
}

/// Transformer decoder block: causal self-attention, cross-attention to a memory, then a feed-forward layer. Equals
/// PyTorch's `TransformerDecoderLayer` with a causal mask.
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

/// State of one decoder block during decoding step by step: keys and values of earlier tokens and of the memory.
#[derive(Clone, Debug)]
pub struct DecoderCache {
    tokens: KeyValueCache,
    memory: CrossMemory,
}

impl DecoderCache {
    /// Keeps the sequences with the indices `rows`, in that order. An index may occur more than once, as in beam
    /// search.
    ///
    /// # Panics
    /// If an index is not below the number of sequences.
    pub fn select(&mut self, rows: &[usize]) {
        self.tokens.select(rows);
        self.memory.select(rows);
    }

    /// Continues as if each sequence had decoded `len` tokens, of which the new ones are zeros. See
    /// [`KeyValueCache::pad_to`](crate::KeyValueCache::pad_to).
    pub fn pad_to(&mut self, len: usize) {
        self.tokens.pad_to(len);
    }

    /// Returns the number of tokens that each sequence has decoded so far.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether no token is decoded yet.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

impl DecoderBlock {
    /// Decodes all tokens `x` `[b, u, d]` at once over `memory` `[b, t, m]`. The result is `[b, u, d]`.
    ///
    /// A token depends on itself, on earlier tokens and on the valid frames of the memory.
    pub fn forward(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        pass: &Pass,
    ) -> Tensor<3> {
        self.forward_by(x, lengths, memory, memory_lengths, pass, |x, memory, pass| {
            (self.cross.before_output(x, memory, pass), ())
        })
        .0
    }

    /// Decodes all tokens `x` `[b, u, d]` at once over `memory` `[b, t, m]`. Returns the result `[b, u, d]`, and the
    /// penalty `[1]` of `guide`: the sum over all valid tokens, averaged over the heads.
    pub fn forward_guided(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        guide: &GuidedAttention,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<1>) {
        self.forward_by(x, lengths, memory, memory_lengths, pass, |x, memory, pass| {
            self.cross.before_output_guided(x, memory, guide, pass)
        })
    }

    /// Decodes all tokens `x` `[b, u, d]` at once over `memory` `[b, t, m]`. Returns the result `[b, u, d]`, and the
    /// cross-attention weights `[b, h, u, t]`. For plots: the tensor of weights is large.
    pub fn forward_with_weights(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<4>) {
        self.forward_by(x, lengths, memory, memory_lengths, pass, |x, memory, pass| {
            let weights = self.cross.weights(x.clone(), memory, pass);
            (self.cross.before_output(x, memory, pass), weights)
        })
    }

    /// Decodes all tokens `x` at once. `cross` computes the cross-attention before its output layer, and also a result that is returned beside
    /// the decoded tokens, such as the attention weights.
    fn forward_by<R>(
        &self,
        x: Tensor<3>,
        lengths: &Lengths,
        memory: Tensor<3>,
        memory_lengths: &Lengths,
        pass: &Pass,
        cross: impl FnOnce(Tensor<3>, &CrossMemory, &Pass) -> (Tensor<3>, R),
    ) -> (Tensor<3>, R) {
        let memory = self.cross.project_memory(memory, memory_lengths, pass);
        let attend = |x| self.attention.before_output(x, lengths, &pass.with("weights"));
        let mut extra = None;
        let y = self.residuals(x, pass, attend, |x, pass| {
            let (attended, result) = cross(x, &memory, pass);
            extra = Some(result);
            attended
        });
        (y, extra.expect("the residual connection calls its closure"))
    }

    /// Creates the empty state for decoding step by step over `memory` `[b, t, m]`.
    pub fn cache(&self, memory: Tensor<3>, lengths: &Lengths, pass: &Pass) -> DecoderCache {
        DecoderCache { tokens: KeyValueCache::default(), memory: self.cross.project_memory(memory, lengths, pass) }
    }

    /// Decodes the next tokens `x` `[b, u, d]` and adds their keys and values to `cache`. The result is `[b, u, d]`.
    ///
    /// The results of several calls equal the result of one [`forward`](Self::forward) over all tokens, up to rounding.
    pub fn extend(&self, x: Tensor<3>, cache: &mut DecoderCache, pass: &Pass) -> Tensor<3> {
        let DecoderCache { tokens, memory } = cache;
        let attend = |x| self.attention.extended(x, tokens, &pass.with("weights"));
        self.residuals(x, pass, attend, |x, pass| self.cross.before_output(x, memory, pass))
    }

    /// Applies the three layers of the block (self-attention, cross-attention, feed-forward layer), each with its
    /// residual connection, norm and dropout. `attend` computes the self-attention and `cross` the cross-attention, both before
    /// their output layers.
    fn residuals(
        &self,
        x: Tensor<3>,
        pass: &Pass,
        attend: impl FnOnce(Tensor<3>) -> Tensor<3>,
        cross: impl FnOnce(Tensor<3>, &Pass) -> Tensor<3>,
    ) -> Tensor<3> {
        let dropped = |end| Epilogue { dropout: self.dropout, ..end };
        if self.norm_first {
            // Each norm belongs to the sum before it.
            let (normed, x) = layer_norm_beside(&self.norm_self, x, pass);
            let (y, next) = (attend(normed), (&self.norm_cross, true));
            let (own, end) = (pass.with("attention"), dropped(onto(x)));
            let (normed, x) = dense_then_norm(self.attention.output_layer(), y, end, &own, next);
            let (y, next) = (cross(normed, &pass.with("cross weights")), (&self.norm_feed_forward, true));
            let (own, end) = (pass.with("cross"), dropped(onto(x)));
            let (normed, x) = dense_then_norm(self.cross.output_layer(), y, end, &own, next);
            return self.feed_forward.forward_into(normed, &pass.with("feed forward"), onto(x));
        }
        let x = post_normed(&self.norm_self, x, pass, |x, end| {
            pass.with("attention").dense_into(self.attention.output_layer(), attend(x), dropped(end))
        });
        let x = post_normed(&self.norm_cross, x, pass, |x, end| {
            let mixed = cross(x, &pass.with("cross weights"));
            pass.with("cross").dense_into(self.cross.output_layer(), mixed, dropped(end))
        });
        post_normed(&self.norm_feed_forward, x, pass, |x, end| {
            self.feed_forward.forward_into(x, &pass.with("feed forward"), end)
        })
    }
}
