//! Multi-head attention over padded batches: to itself, to a memory, all at once or in chunks.

mod cache;

mod cross;
mod mix;

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_core::Precision;
use plimsoll_tape::{Attended, Offsets, Pass, Sight, glance};
use serde::{Deserialize, Serialize};

use crate::Lengths;
use crate::branch::Branch;
use crate::position::{offsets, rotate};
pub use cache::KeyValues;
pub use cross::{CrossAttention, CrossAttentionConfig, CrossMemory};
use mix::attend;

// Shapes: b batch, t frames, d model width, h heads, w width of a head.

/// What attention itself knows of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadPositions {
    /// Nothing: positions are in the input, such as sinusoids that were added to it.
    #[default]
    Absolute,
    /// Every query knows its distance to every key (Dai et al. 2019, as in ESPnet).
    Relative,
    /// Queries and keys are rotated by their place (Su et al. 2021).
    Rotary,
}

/// How to build an [`Attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionConfig {
    /// Width of the model.
    pub d_model: usize,
    /// Heads; they share the width evenly.
    pub heads: usize,
    /// Share of attention weights dropped in training.
    pub dropout: f64,
    /// What attention itself knows of positions.
    pub positions: HeadPositions,
    /// Whether no frame sees what comes after it.
    pub causal: bool,
}

/// Self-attention with several heads; queries, keys and values come from one projection.
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
    /// Attention of `heads` heads that sees everything, knows no positions and drops a tenth.
    pub fn new(d_model: usize, heads: usize) -> Self {
        Self { d_model, heads, dropout: 0.1, positions: HeadPositions::Absolute, causal: false }
    }

    /// Attention on `device`.
    ///
    /// # Panics
    /// Where the heads do not share the width evenly.
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

/// The width of each of `heads` heads.
fn width_of_head(d: usize, heads: usize) -> usize {
    assert!(heads > 0 && d.is_multiple_of(heads), "{heads} heads cannot share a width of {d}");
    d / heads
}

impl Attention {
    /// `[b, t, d]` to `[b, t, d]`; no frame sees padding.
    ///
    /// Where the pass says so, queries are taken in chunks, each of which computes its scores a second time in the
    /// backward pass: the result is the same, and memory grows with the length instead of its square.
    pub fn forward(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        pass.dense(&self.output, self.before_output(x, lengths, pass))
    }

    /// The same for frames `[b, t, d]` that come after those in `cache`, whose keys and values join it.
    ///
    /// All sequences are as long as each other, and causal attention is what makes the result that of
    /// [`forward`](Self::forward) over everything at once.
    pub fn extend(&self, x: Tensor<3>, cache: &mut KeyValues, pass: &Pass) -> Tensor<3> {
        let [b, t, _] = x.dims();
        let first = cache.len();
        let [query, key, value] = self.parts(x, first, pass);
        let (key, value) = cache.append(key, value);
        let seen = first + t;
        if t == 1 && self.position.is_none() && pass.choice().precision == Precision::Fp32 {
            // One query that sees all there is.
            let [_, h, _, w] = query.dims();
            let mixed = glance(query * (1.0 / (w as f64).sqrt()), &key, &value, seen);
            return pass.dense(&self.output, mixed.reshape([b, 1, h * w]));
        }
        let (key, value) = (key.narrow(2, 0, seen), value.narrow(2, 0, seen));
        let sight = Sight { keys: vec![(first + t) as u32; b].into(), causal: self.causal, first };
        pass.dense(&self.output, self.mixed(query, key, value, sight, pass))
    }

    /// Queries, keys and values `[b, h, t, w]` of frames from place `first` on.
    fn parts(&self, x: Tensor<3>, first: usize, pass: &Pass) -> [Tensor<4>; 3] {
        let [b, t, d] = x.dims();
        let (h, w) = (self.heads, d / self.heads);
        let projected = pass.dense(&self.project, x).reshape([b, t, 3, h, w]);
        let part = |index: usize| -> Tensor<4> {
            projected.clone().slice([0..b, 0..t, index..index + 1, 0..h, 0..w]).reshape([b, t, h, w]).swap_dims(1, 2)
        };
        let turned = |x: Tensor<4>| if self.rotary { rotate(x, first) } else { x };
        [turned(part(0)), turned(part(1)), part(2)]
    }

    fn mixed(&self, query: Tensor<4>, key: Tensor<4>, value: Tensor<4>, sight: Sight, pass: &Pass) -> Tensor<3> {
        let [b, h, t, w] = query.dims();
        let (scale, keys) = (1.0 / (w as f64).sqrt(), key.dims()[2]);
        let (query, offsets) = match (&self.position, &self.bias_content, &self.bias_position) {
            (Some(position), Some(content), Some(place)) => {
                let biased = |bias: &Param<Tensor<2>>| {
                    let bias = bias.val().reshape([1, h, 1, w]).cast(query.dtype());
                    (query.clone() + bias) * scale
                };
                let table = offsets(sight.first, t, keys, h * w, &query.device()).unsqueeze::<3>();
                let table = pass.dense(position, table).reshape([1, t + keys - 1, h, w]).swap_dims(1, 2);
                (biased(content), Some(Offsets { query: biased(place), table }))
            }
            _ => (query * scale, None),
        };
        let mixed = attend(Attended { query, key, value, offsets }, &sight, pass, self.dropout);
        mixed.swap_dims(1, 2).reshape([b, t, h * w])
    }
}

impl Branch for Attention {
    fn before_output(&self, x: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        let [query, key, value] = self.parts(x, 0, pass);
        let sight = Sight { keys: lengths.each().into(), causal: self.causal, first: 0 };
        self.mixed(query, key, value, sight, pass)
    }

    fn output_layer(&self) -> &Linear {
        &self.output
    }
}
