//! Conformer block of a speech encoder.

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Pass;
use plimsoll_tape::epilogue::Epilogue;

use crate::branch::{Branch, rematerialized_branch};
use crate::norm::{dense_then_norm, layer_norm_beside};
use crate::{
    Activation, Attention, AttentionConfig, Convolution, ConvolutionConfig, FeedForward, FeedForwardConfig,
    HeadPositions, Lengths, NormKind, apply_layer_norm,
};

/// Configuration of a [`Conformer`] block.
#[derive(Clone, Copy, Debug)]
pub struct ConformerConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Number of attention heads. Must divide `d_model`.
    pub heads: usize,
    /// Number of frames under the depthwise kernel. Must be odd. Default: 15.
    pub kernel: usize,
    /// Inner width of the feed-forward layers divided by `d_model`. Default: 4.
    pub feed_forward_multiplier: usize,
    /// Position information that attention adds. Default: absolute.
    pub positions: HeadPositions,
    /// Norm inside the convolution layer. Default: layer norm.
    pub norm: NormKind,
    /// Dropout probability in training, in `[0, 1)`. Default: 0.1.
    pub dropout: f64,
}

/// Conformer block (Gulati et al. 2020): feed-forward, self-attention, convolution, feed-forward, layer norm.
///
/// Each of the four parts has a layer norm before it and a residual connection around it; the feed-forward layers count
/// half. With batch norm, and for batches without padding, the block equals torchaudio's `ConformerLayer`.
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
    /// Creates the configuration of a block of width `d_model` with `heads` attention heads and the defaults of the
    /// other fields.
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

    /// Builds the block on `device`.
    ///
    /// # Panics
    /// If `heads` does not divide `d_model`, the kernel is even, or the groups of a group norm do not divide `d_model`.
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
    /// Applies the block: `[b, t, d]` to `[b, t, d]`. Padding changes no valid frame; output frames in the padding have
    /// no meaning.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        // Each norm but the first belongs to the sum before it.
        let onto = |x, factor| self.onto(x, factor);
        let [first, second, convolution] = ["first", "second", "convolution"].map(|name| pass.with(name));
        let (normed, x) = layer_norm_beside(&self.norm_first, x, &first);
        let y = self.first.before_output(normed, lengths, &first);
        let (outer, next) = (FeedForward::output_pass(&first), (&self.norm_attention, true));
        let (normed, x) = dense_then_norm(self.first.output_layer(), y, onto(x, 0.5), &outer, next);
        let y = self.attention.before_output(normed, lengths, &pass.with("weights"));
        let (outer, next) = (pass.with("attention"), (&self.norm_convolution, true));
        let (normed, x) = dense_then_norm(self.attention.output_layer(), y, onto(x, 1.0), &outer, next);
        let y = self.convolution.before_output(normed, lengths, &convolution);
        let next = (&self.norm_second, true);
        let (normed, x) = dense_then_norm(self.convolution.output_layer(), y, onto(x, 1.0), &convolution, next);
        let y = self.second.before_output(normed, lengths, &second);
        let (outer, next) = (FeedForward::output_pass(&second), (&self.norm_last, false));
        dense_then_norm(self.second.output_layer(), y, onto(x, 0.5), &outer, next).0
    }

    /// Applies the block like [`forward`](Self::forward), with less memory and more time. Results and gradients are
    /// equal, on the CPU to the last bit.
    ///
    /// The tape keeps the input of each of the four parts. The backward pass computes the activations of the parts
    /// again, except the linear layer at the end of each part.
    pub fn forward_rematerialized(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let [first, second] = [pass.with("first"), pass.with("second")];
        let whole = |x| self.onto(x, 1.0);
        let half = |norm, layer: &FeedForward, x: Tensor<3>, pass: &Pass| {
            let outer = FeedForward::output_pass(pass);
            rematerialized_branch(norm, layer, x, lengths, pass, (&outer, |x| self.onto(x, 0.5)))
        };
        let x = half(&self.norm_first, &self.first, x, &first);
        let (weights, end) = (pass.with("weights"), (&pass.with("attention"), whole));
        let x = rematerialized_branch(&self.norm_attention, &self.attention, x, lengths, &weights, end);
        let convolution = pass.with("convolution");
        let end = (&convolution, whole);
        let x = rematerialized_branch(&self.norm_convolution, &self.convolution, x, lengths, &convolution, end);
        apply_layer_norm(&self.norm_last, half(&self.norm_second, &self.second, x, &second), pass)
    }

    /// Returns what follows the last layer of a part whose input is `x`: dropout, and the sum with `x` after a `factor`.
    fn onto(&self, x: Tensor<3>, factor: f64) -> Epilogue {
        Epilogue { dropout: self.dropout, residual: Some((x, factor)), ..Epilogue::default() }
    }
}
