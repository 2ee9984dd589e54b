//! Attention from one sequence to another, such as from the letters to the sound.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use plimsoll_tape::{Attended, Noise, Pass, Sight, attention_weights};

use super::cache::chosen;
use super::mix::attend;
use super::width_of_head;
use crate::{Guide, Lengths};

// Shapes: b batch, u queries, t frames of the memory, d model width, m memory width, h heads, w width of a head.

/// How to build a [`CrossAttention`].
#[derive(Clone, Copy, Debug)]
pub struct CrossAttentionConfig {
    /// Width of what asks.
    pub d_model: usize,
    /// Width of what is asked.
    pub d_memory: usize,
    /// Heads; they share the width evenly.
    pub heads: usize,
    /// Share of attention weights dropped in training.
    pub dropout: f64,
}

/// Attention with several heads to a memory; keys and values come from one projection.
#[derive(Module, Debug)]
pub struct CrossAttention {
    query: Linear,
    memory: Linear,
    output: Linear,
    heads: usize,
    dropout: f64,
}

/// A memory as one layer looks at it: computed once, asked for every token.
#[derive(Clone, Debug)]
pub struct CrossMemory {
    key: Tensor<4>,
    value: Tensor<4>,
    lengths: Vec<u32>,
}

impl CrossMemory {
    fn sight(&self) -> Sight {
        Sight { keys: self.lengths.as_slice().into(), causal: false, first: 0 }
    }

    /// Keeps the sequences numbered in `rows`, in that order; a number may come more than once.
    pub fn select(&mut self, rows: &[usize]) {
        self.key = chosen(self.key.clone(), rows);
        self.value = chosen(self.value.clone(), rows);
        self.lengths = rows.iter().map(|&row| self.lengths[row]).collect();
    }
}

impl CrossAttentionConfig {
    /// Attention on `device`.
    ///
    /// # Panics
    /// Where the heads do not share the width evenly.
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
    /// `x` `[b, u, d]` asks `memory` `[b, t, m]`; padding of the memory is not seen.
    pub fn forward(&self, x: Tensor<3>, memory: Tensor<3>, lengths: &Lengths, pass: &Pass) -> Tensor<3> {
        self.ask(x, &self.look(memory, lengths, pass), pass)
    }

    /// The memory `[b, t, m]` as this layer looks at it.
    pub fn look(&self, memory: Tensor<3>, lengths: &Lengths, pass: &Pass) -> CrossMemory {
        let [b, t, _] = memory.dims();
        let projected = pass.dense(&self.memory, memory);
        let [_, _, both] = projected.dims();
        let (h, w) = (self.heads, both / 2 / self.heads);
        let projected = projected.reshape([b, t, 2, h, w]);
        let part = |index: usize| -> Tensor<4> {
            projected.clone().slice([0..b, 0..t, index..index + 1, 0..h, 0..w]).reshape([b, t, h, w]).swap_dims(1, 2)
        };
        CrossMemory { key: part(0), value: part(1), lengths: lengths.each().to_vec() }
    }

    /// `x` `[b, u, d]` asks what [`look`](Self::look) gave.
    pub fn ask(&self, x: Tensor<3>, memory: &CrossMemory, pass: &Pass) -> Tensor<3> {
        let mixed = self.mixed(self.query(x, pass), memory, memory.value.clone(), pass);
        self.joined(mixed, pass)
    }

    /// The same, and how far it looked from where `guide` would: the sum over all valid queries.
    pub fn ask_guided(&self, x: Tensor<3>, memory: &CrossMemory, guide: &Guide, pass: &Pass) -> (Tensor<3>, Tensor<1>) {
        let values = guide.append(memory.value.clone());
        let (mixed, penalty) = guide.take(self.mixed(self.query(x, pass), memory, values, pass));
        (self.joined(mixed, pass), penalty)
    }

    /// The weights `[b, h, u, t]` by which `x` `[b, u, d]` would look: for pictures, as they are large.
    pub fn weights(&self, x: Tensor<3>, memory: &CrossMemory, pass: &Pass) -> Tensor<4> {
        let scores = pass.full(self.query(x, pass)).matmul(pass.full(memory.key.clone()).swap_dims(2, 3));
        attention_weights(scores, &memory.sight(), &Noise::off(), 0.0)
    }

    /// What asks, scaled, `[b, h, u, w]`.
    fn query(&self, x: Tensor<3>, pass: &Pass) -> Tensor<4> {
        let [b, u, d] = x.dims();
        let (h, w) = (self.heads, d / self.heads);
        pass.dense(&self.query, x).reshape([b, u, h, w]).swap_dims(1, 2) * (1.0 / (w as f64).sqrt())
    }

    fn mixed(&self, query: Tensor<4>, memory: &CrossMemory, value: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let parts = Attended { query, key: memory.key.clone(), value, offsets: None };
        attend(parts, &memory.sight(), pass, self.dropout)
    }

    fn joined(&self, mixed: Tensor<4>, pass: &Pass) -> Tensor<3> {
        let [b, h, u, w] = mixed.dims();
        pass.dense(&self.output, mixed.swap_dims(1, 2).reshape([b, u, h * w]))
    }
}
