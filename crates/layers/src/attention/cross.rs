//! Cross-attention: from the tokens of a text to the frames of a recording, for example.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::heads::{Head, join};
use plimsoll_tape::{AttentionInputs, AttentionMask, Noise, Pass, attention_weights};

use super::cache::select_rows;
use super::mix::attend;
use super::width_of_head;
use crate::{GuidedAttention, Lengths};

// Shapes: b batch, u queries, t frames of the memory, d model width, m memory width, h heads, w = d / h width of a
// head.

/// Configuration of a [`CrossAttention`].
#[derive(Clone, Copy, Debug)]
pub struct CrossAttentionConfig {
    /// Width of the queries and of the output of cross-attention.
    pub d_model: usize,
    /// Width of the memory to which cross-attention attends.
    pub d_memory: usize,
    /// Number of attention heads. Must divide `d_model`.
    pub heads: usize,
    /// Dropout probability of the attention weights in training, in `[0, 1)`.
    pub dropout: f64,
}

/// Multi-head attention from one sequence to a second sequence, the memory (Vaswani et al. 2017).
///
/// Equals PyTorch's `MultiheadAttention` with `kdim` and `vdim` of `d_memory`. One linear layer projects the memory to
/// keys and values.
#[derive(Module, Debug)]
pub struct CrossAttention {
    query: Linear,
    memory: Linear,
    output: Linear,
    heads: usize,
    dropout: f64,
}

/// Keys and values of a memory, projected by one layer.
///
/// [`CrossAttention::project_memory`] computes the keys and values once; each decoding step uses them again.
#[derive(Clone, Debug)]
pub struct CrossMemory {
    key: Tensor<4>,
    value: Tensor<4>,
    mask: AttentionMask,
}

impl CrossMemory {
    /// Keeps the sequences with the indices `rows`, in that order. An index may occur more than once, as in beam
    /// search.
    ///
    /// # Panics
    /// If an index is not below the number of sequences.
    pub fn select(&mut self, rows: &[usize]) {
        self.key = select_rows(self.key.clone(), rows);
        self.value = select_rows(self.value.clone(), rows);
        let lengths = rows.iter().map(|&row| self.mask.key_lengths[row]).collect();
        self.mask = Lengths::new(lengths, self.key.dims()[2]).attention_mask(false);
    }
}

impl CrossAttentionConfig {
    /// Builds the layer on `device`.
    ///
    /// # Panics
    /// If `heads` is zero or does not divide `d_model`.
    pub fn init(&self, device: &Device) -> CrossAttention {
        let d = self.d_model;
        width_of_head(d, self.heads);
        CrossAttention {
            query: LinearConfig::new(d, d).init(device),
            memory: LinearConfig::new(self.d_memory, 2 * d).init(device),
            output: LinearConfig::new(d, d).init(device),
            heads: self.heads,
            dropout: self.dropout,
        }
    }
}

impl CrossAttention {
    /// Attends from `x` `[b, u, d]` to `memory` `[b, t, m]` with the valid lengths `lengths`. The result is
    /// `[b, u, d]`.
    ///
    /// Padding of the memory gets a weight of zero.
    pub fn forward(&self, x: Tensor<3>, memory: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        self.attend(x, &self.project_memory(memory, lengths, pass), pass)
    }

    /// Projects `memory` `[b, t, m]`, with the valid lengths `lengths`, to the keys and values of this layer.
    pub fn project_memory(&self, memory: Tensor<3>, lengths: &Lengths, pass: &Pass) -> CrossMemory {
        let [key, value] = pass.dense_heads(&self.memory, memory, self.heads, 2, [Head::of(0), Head::of(1)]);
        CrossMemory { key, value, mask: lengths.attention_mask(false) }
    }

    /// Attends from `x` `[b, u, d]` to a memory from [`project_memory`](Self::project_memory). The result is
    /// `[b, u, d]`.
    pub fn attend(&self, x: Tensor<3>, memory: &CrossMemory, pass: &Pass) -> Tensor<3> {
        pass.dense(&self.output, self.before_output(x, memory, pass))
    }

    /// Computes the input `[b, u, d]` of the output layer of [`attend`](Self::attend).
    pub(crate) fn before_output(&self, x: Tensor<3>, memory: &CrossMemory, pass: &Pass) -> Tensor<3> {
        join(self.mixed(self.query(x, pass), memory, memory.value.clone(), pass))
    }

    /// Returns the last linear layer.
    pub(crate) fn output_layer(&self) -> &Linear {
        &self.output
    }

    /// Attends from `x` `[b, u, d]` to a memory from [`project_memory`](Self::project_memory). Returns the output
    /// `[b, u, d]`, and the penalty `[1]` of `guide`: the sum over all valid queries, averaged over the heads.
    pub fn attend_guided(
        &self,
        x: Tensor<3>,
        memory: &CrossMemory,
        guide: &GuidedAttention,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<1>) {
        let (mixed, penalty) = self.before_output_guided(x, memory, guide, pass);
        (pass.dense(&self.output, mixed), penalty)
    }

    /// Computes the input `[b, u, d]` of the output layer of [`attend_guided`](Self::attend_guided), and the penalty.
    pub(crate) fn before_output_guided(
        &self,
        x: Tensor<3>,
        memory: &CrossMemory,
        guide: &GuidedAttention,
        pass: &Pass,
    ) -> (Tensor<3>, Tensor<1>) {
        let values = guide.append(memory.value.clone());
        let (mixed, penalty) = guide.split(self.mixed(self.query(x, pass), memory, values, pass));
        (join(mixed), penalty)
    }

    /// Computes the attention weights `[b, h, u, t]` of `x` `[b, u, d]`, without dropout. For plots: the tensor is
    /// large.
    pub fn weights(&self, x: Tensor<3>, memory: &CrossMemory, pass: &Pass) -> Tensor<4> {
        let scores =
            pass.at_least_fp32(self.query(x, pass)).matmul(pass.at_least_fp32(memory.key.clone()).swap_dims(2, 3));
        attention_weights(scores, None, &memory.mask, &Noise::off(), 0.0)
    }

    /// Computes the queries `[b, h, u, w]`, scaled by `1 / sqrt(w)`.
    fn query(&self, x: Tensor<3>, pass: &Pass) -> Tensor<4> {
        let [_, _, d] = x.dims();
        let w = d / self.heads;
        let scaled = Head { factor: 1.0 / (w as f64).sqrt(), ..Head::of(0) };
        let [query] = pass.dense_heads(&self.query, x, self.heads, 1, [scaled]);
        query
    }

    /// Computes the weighted values `[b, h, u, w]`. `value` may have more channels than the keys; the result has the
    /// additional channels, too.
    fn mixed(&self, query: Tensor<4>, memory: &CrossMemory, value: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let parts = AttentionInputs { query, key: memory.key.clone(), value, positions: None };
        attend(parts, &memory.mask, pass, self.dropout)
    }
}
