//! Multi-head self-attention over a padded batch.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::Noise;

use crate::{Lengths, dense};

// Shapes: b batch, t frames, d model width, h heads, w width of a head.

/// A score that softmax turns into an exact zero, and that is still finite in 16 bits.
const MASKED: f32 = -3e4;

/// How to build an [`Attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Heads; they share the width evenly.
    pub heads: usize,
    /// Share of attention weights dropped in training.
    pub dropout: f64,
}

/// Self-attention with several heads; queries, keys and values come from one projection.
#[derive(Module, Debug)]
pub struct Attention {
    project: Linear,
    output: Linear,
    heads: usize,
    dropout: f64,
}

impl AttentionConfig {
    /// Attention on `device`.
    ///
    /// # Panics
    /// Where the heads do not share the width evenly.
    pub fn init(&self, device: &Device) -> Attention {
        let (d, heads) = (self.d_model, self.heads);
        assert!(heads > 0 && d.is_multiple_of(heads), "{heads} heads cannot share a width of {d}");
        Attention {
            project: LinearConfig::new(d, 3 * d).init(device),
            output: LinearConfig::new(d, d).init(device),
            heads,
            dropout: self.dropout,
        }
    }
}

impl Attention {
    /// `[b, t, d]` to `[b, t, d]`; no frame sees padding.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, noise: &Noise) -> Tensor<3> {
        let [b, t, d] = x.dims();
        let (h, w) = (self.heads, d / self.heads);
        let projected = dense(&self.project, x).reshape([b, t, 3, h, w]);
        let part = |index: usize| -> Tensor<4> {
            projected.clone().slice([0..b, 0..t, index..index + 1, 0..h, 0..w]).reshape([b, t, h, w]).swap_dims(1, 2)
        };
        let (query, key, value) = (part(0), part(1), part(2));
        let query = query * (1.0 / (w as f64).sqrt());
        let mut scores = query.matmul(key.swap_dims(2, 3));
        if let Some(padding) = lengths.padding(&scores.device()) {
            let keys = padding.unsqueeze_dim::<3>(1).unsqueeze_dim::<4>(1).expand([b, h, t, t]);
            scores = scores.mask_fill(keys, MASKED);
        }
        let weights = noise.dropout(softmax(scores, 3), self.dropout);
        let mixed = weights.matmul(value).swap_dims(1, 2).reshape([b, t, d]);
        dense(&self.output, mixed)
    }
}
