//! Multi-head attention over padded batches: self-attention and cross-attention, whole or in chunks of queries.

mod cache;
mod cross;
mod mix;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::Precision;
use plimsoll_tape::heads::{Head, join};
use plimsoll_tape::transfer::Constants;
use plimsoll_tape::{AttentionInputs, AttentionMask, Pass, RelativePositions, single_query_attention};
use serde::{Deserialize, Serialize};

use crate::Lengths;
use crate::branch::Branch;
use crate::position::{offsets, rotate};
pub use cache::KeyValueCache;
pub use cross::{CrossAttention, CrossAttentionConfig, CrossMemory};
use mix::attend;

// Shapes: b batch, t frames, d model width, h heads, w = d / h width of a head.

/// Position information that self-attention itself adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HeadPositions {
    /// No positions: the input already contains them, for example from [`add_sinusoids`](crate::add_sinusoids).
    #[default]
    Absolute,
    /// Relative positions: scores depend on the signed distance from query to key (Transformer-XL, Dai et al. 2019;
    /// equal to ESPnet's `RelPositionMultiHeadedAttention`).
    Relative,
    /// Rotary positions: queries and keys are rotated by their frame index (RoFormer, Su et al. 2021).
    Rotary,
}

/// Configuration of an [`Attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Number of attention heads. Must divide `d_model`.
    pub heads: usize,
    /// Dropout probability of the attention weights in training, in `[0, 1)`.
    pub dropout: f64,
    /// Position information that the attention layer adds.
    pub positions: HeadPositions,
    /// Whether attention is causal: a frame attends to itself and to earlier frames only.
    pub causal: bool,
}

/// Multi-head self-attention (Vaswani et al. 2017).
///
/// With absolute positions the layer equals PyTorch's `MultiheadAttention`: one linear layer projects queries, keys and
/// values, and a second linear layer projects the result.
#[derive(Module, Debug)]
pub struct Attention {
    project: Linear,
    output: Linear,
    position: Option<Linear>,
    bias_content: Option<Param<Tensor<2>>>,
    bias_position: Option<Param<Tensor<2>>>,
    heads: usize,
    dropout: f64,
    rotary: bool,
    causal: bool,
}

impl AttentionConfig {
    /// Creates the configuration of attention over all frames, with absolute positions and a dropout of 0.1.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self { d_model, heads, dropout: 0.1, positions: HeadPositions::Absolute, causal: false }
    }

    /// Builds the layer on `device`.
    ///
    /// # Panics
    /// If `heads` is zero or does not divide `d_model`.
    pub fn init(&self, device: &Device) -> Attention {
        let (d, heads) = (self.d_model, self.heads);
        let width = width_of_head(d, heads);
        let is_relative = self.positions == HeadPositions::Relative;
        let bias = || is_relative.then(|| Param::from_tensor(Tensor::zeros([heads, width], device)));
        Attention {
            project: LinearConfig::new(d, 3 * d).init(device),
            output: LinearConfig::new(d, d).init(device),
            position: is_relative.then(|| LinearConfig::new(d, d).with_bias(false).init(device)),
            bias_content: bias(),
            bias_position: bias(),
            heads,
            dropout: self.dropout,
            rotary: self.positions == HeadPositions::Rotary,
            causal: self.causal,
        }
    }
}

/// Computes the width of each of `heads` heads. Panics if `heads` does not divide `d`.
fn width_of_head(d: usize, heads: usize) -> usize {
    assert!(heads > 0 && d.is_multiple_of(heads), "{heads} heads do not divide a width of {d}");
    d / heads
}

impl Attention {
    /// Attends within each sequence: `[b, t, d]` to `[b, t, d]`.
    ///
    /// Keys in the padding get a weight of zero. Output frames in the padding have no meaning.
    ///
    /// If [`Choice::attention_chunk`](plimsoll_core::Choice::attention_chunk) is set, the layer takes that many queries
    /// at a time and computes their scores again in the backward pass. The result is equal up to rounding, and memory
    /// grows with the length instead of its square.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        pass.dense(&self.output, self.before_output(x, lengths, pass))
    }

    /// Attends from new frames `[b, t, d]` to the frames in `cache` and to the new frames, and adds the keys and values
    /// of the new frames to `cache`. For decoding step by step.
    ///
    /// All sequences must have the same length. With causal attention the results of several calls equal the result of
    /// one [`forward`](Self::forward) over the whole sequence, up to rounding.
    pub fn extend(&self, x: Tensor<3>, cache: &mut KeyValueCache, pass: &Pass) -> Tensor<3> {
        pass.dense(&self.output, self.extended(x, cache, pass))
    }

    /// Computes the input `[b, t, d]` of the output layer of [`extend`](Self::extend).
    pub(crate) fn extended(&self, x: Tensor<3>, cache: &mut KeyValueCache, pass: &Pass) -> Tensor<3> {
        let [b, t, _] = x.dims();
        let first = cache.len();
        let parts = self.parts(x, first, &Constants::default(), pass);
        let (key, value) = cache.append(parts.key, parts.value);
        let count = first + t;
        if t == 1 && self.position.is_none() && pass.choice().precision == Precision::Fp32 {
            // One query that attends to all keys: causal masking changes nothing.
            let [_, h, _, w] = parts.query.dims();
            let mixed = single_query_attention(parts.query, &key, &value, count);
            return mixed.reshape([b, 1, h * w]);
        }
        let (key, value) = (key.narrow(2, 0, count), value.narrow(2, 0, count));
        let sight = AttentionMask {
            first_query: first,
            ..Lengths::new(vec![count as u32; b], count).attention_mask(self.causal)
        };
        self.mixed(Parts { key, value, ..parts }, sight, pass)
    }

    /// Computes queries, keys and values of frames `[b, t, d]`, the first of which has the index `first`. `constants` keeps what
    /// layers share.
    fn parts(&self, x: Tensor<3>, first: usize, constants: &Constants, pass: &Pass) -> Parts {
        let [_, _, d] = x.dims();
        let heads = self.heads;
        let scale = 1.0 / ((d / heads) as f64).sqrt();
        let [key, value] = [Head::of(1), Head::of(2)];
        match (&self.bias_content, &self.bias_position) {
            (Some(content), Some(position)) => {
                let biased = |bias: &Param<Tensor<2>>| Head {
                    part: 0,
                    bias: Some(pass.to_compute_dtype(bias.val())),
                    factor: scale,
                };
                let results = [biased(content), biased(position), key, value];
                let [query, position_query, key, value] = pass.dense_heads(&self.project, x, heads, 3, results);
                Parts { query, position_query: Some(position_query), key, value }
            }
            _ if self.rotary => {
                let [query, key, value] = pass.dense_heads(&self.project, x, heads, 3, [Head::of(0), key, value]);
                let query = rotate(query, first, constants) * scale;
                Parts { query, position_query: None, key: rotate(key, first, constants), value }
            }
            _ => {
                let query = Head { factor: scale, ..Head::of(0) };
                let [query, key, value] = pass.dense_heads(&self.project, x, heads, 3, [query, key, value]);
                Parts { query, position_query: None, key, value }
            }
        }
    }

    /// Attends with projected queries, keys and values, and concatenates the heads: `[b, t, d]`, before the output
    /// layer.
    fn mixed(&self, parts: Parts, sight: AttentionMask, pass: &Pass) -> Tensor<3> {
        let Parts { query, position_query, key, value } = parts;
        let [_, h, t, w] = query.dims();
        let keys = key.dims()[2];
        let positions = self.position.as_ref().zip(position_query).map(|(position, query)| {
            let device = query.device();
            let sizes = [sight.first_query, t, keys, h * w, pass.choice().precision as usize];
            let table = sight.constants.get("offsets", &sizes, &device, || {
                pass.to_compute_dtype(offsets(sight.first_query, t, keys, h * w, &device).unsqueeze::<3>())
            });
            let [table] = pass.dense_heads(position, table, h, 1, [Head::of(0)]);
            RelativePositions { query, table }
        });
        join(attend(AttentionInputs { query, key, value, positions }, &sight, pass, self.dropout))
    }
}

/// Queries, keys and values `[b, h, t, w]` of attention. The queries are scaled.
struct Parts {
    query: Tensor<4>,
    /// Queries that are multiplied by the embeddings of distances, where attention has those.
    position_query: Option<Tensor<4>>,
    key: Tensor<4>,
    value: Tensor<4>,
}

impl Branch for Attention {
    fn before_output(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let parts = self.parts(x, 0, lengths.constants(), pass);
        self.mixed(parts, lengths.attention_mask(self.causal), pass)
    }

    fn output_layer(&self) -> &Linear {
        &self.output
    }
}
