//! Exact attention over chunks of queries: memory grows with the sequence length instead of its square.
//!
//! The forward pass keeps queries, keys and values. The backward pass recomputes the weights of one chunk, uses them
//! and frees them before the next chunk. It does not recompute the outputs of the chunks, because no gradient depends
//! on them.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use burn::tensor::{Device, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::autodiff::Autodiff;

use super::shift::relative_shift_backward;
use super::weights::{AttentionMask, WeightsOp};
use crate::Noise;
use crate::bridge::{PrimitiveBackend, on_backend};
use crate::transfer::Constants;

// Shapes: b batch, h heads, q queries, k keys, w width of a head.

/// Inputs of [`chunked_attention`]: queries, keys, values, and an optional term for relative positions.
#[derive(Clone, Debug)]
pub struct AttentionInputs {
    /// Queries `[samples, heads, queries, head width]`, already scaled.
    pub query: Tensor<4>,
    /// Keys `[samples, heads, keys, head width]`.
    pub key: Tensor<4>,
    /// Values `[samples, heads, keys, head width]`, one for each key.
    pub value: Tensor<4>,
    /// Inputs of the term that scores the distance between query and key; `None` if scores depend on content alone.
    pub positions: Option<RelativePositions>,
}

/// Inputs of the term of attention scores that depends on the distance between query and key (Dai et al. 2019).
#[derive(Clone, Debug)]
pub struct RelativePositions {
    /// Scaled queries `[samples, heads, queries, head width]` that are multiplied by the embeddings of the distances.
    /// They differ from the queries that are multiplied by the keys in their bias.
    pub query: Tensor<4>,
    /// Embeddings of the distances, `[1, heads, queries - 1 + keys, head width]`. The first embedding is for the last
    /// query and the first key, the last embedding for the first query and the last key.
    pub table: Tensor<4>,
}

/// Computes the attention output `[samples, heads, queries, head width]` for `chunk` queries at a time, which saves
/// memory.
///
/// Values and gradients equal attention without chunks: scores, [`attention_weights`](super::attention_weights), and a
/// product with the values, dropout included. All inputs have the same dtype; sums are in fp32.
pub fn chunked_attention(
    inputs: AttentionInputs,
    mask: &AttentionMask,
    noise: &Noise,
    rate: f64,
    chunk: NonZeroU32,
) -> Tensor<4> {
    let op = ChunkedAttention { mask: mask.clone(), noise: noise.clone(), rate, chunk: chunk.get() as usize };
    let device = inputs.query.device();
    if !device.is_autodiff() {
        return op.forward(&inputs);
    }
    on_backend!(&device, B => on_tape::<B>(inputs, op))
}

#[derive(Clone, Debug)]
struct ChunkedAttention {
    mask: AttentionMask,
    noise: Noise,
    rate: f64,
    chunk: usize,
}

/// Gradients of the inputs of attention, in the order query, key, value, query of the position term, table of the
/// position term; `None` for an input that attention does not have.
type InputGradients = [Option<Tensor<4>>; 5];

impl ChunkedAttention {
    /// Divides a sequence of `queries` queries into chunks. Returns the index of the first query and the number of
    /// queries of each chunk.
    fn chunks(&self, queries: usize) -> impl Iterator<Item = (usize, usize)> {
        let chunk = self.chunk;
        (0..queries).step_by(chunk).map(move |first| (first, chunk.min(queries - first)))
    }

    fn weights(&self, first: usize) -> WeightsOp {
        let first_query = self.mask.first_query + first;
        // A causal mask belongs to one chunk only; kept, those of all chunks would be as large as the whole.
        let constants = if self.mask.causal { Constants::default() } else { self.mask.constants.clone() };
        let visibility = AttentionMask { first_query, constants, ..self.mask.clone() };
        WeightsOp { dropout: self.noise.mask(self.rate, visibility.first_query), visibility }
    }

    /// Computes the softmax of the scores and, after dropout, the attention weights of one chunk: `count` queries from
    /// index `first` on.
    fn softmax_and_weights(&self, inputs: &AttentionInputs, first: usize, count: usize) -> (Tensor<4>, Tensor<4>) {
        let query = inputs.query.clone().narrow(2, first, count);
        let scores = query.matmul(inputs.key.clone().swap_dims(2, 3));
        let by_distance = inputs.positions.as_ref().map(|positions| {
            let (position_query, table) = positions.chunk(first, count, inputs.key.dims()[2]);
            position_query.matmul(table.swap_dims(2, 3))
        });
        self.weights(first).softmax_and_weights(scores, by_distance)
    }

    fn forward(&self, inputs: &AttentionInputs) -> Tensor<4> {
        let chunks = self.chunks(inputs.query.dims()[2]);
        let outputs =
            chunks.map(|(first, count)| self.softmax_and_weights(inputs, first, count).1.matmul(inputs.value.clone()));
        Tensor::cat(outputs.collect(), 2)
    }

    fn backward(&self, inputs: &AttentionInputs, grad_output: &Tensor<4>) -> InputGradients {
        let (mut grad_query, mut grad_position_query) = (Vec::new(), Vec::new());
        let (mut grad_key, mut grad_value): (Option<Tensor<4>>, Option<Tensor<4>>) = (None, None);
        let mut grad_table = inputs.positions.as_ref().map(|positions| Tensor::zeros_like(&positions.table));
        for (first, count) in self.chunks(inputs.query.dims()[2]) {
            let grad_output = grad_output.clone().narrow(2, first, count);
            let (softmax, weights) = self.softmax_and_weights(inputs, first, count);
            add(&mut grad_value, weights.swap_dims(2, 3).matmul(grad_output.clone()));
            let grad_weights = grad_output.matmul(inputs.value.clone().swap_dims(2, 3));
            let (grad_scores, grad_distances) =
                self.weights(first).gradient(softmax, grad_weights, inputs.positions.is_some());
            grad_query.push(grad_scores.clone().matmul(inputs.key.clone()));
            let query = inputs.query.clone().narrow(2, first, count);
            add(&mut grad_key, grad_scores.clone().swap_dims(2, 3).matmul(query));
            if let (Some(positions), Some(sum)) = (&inputs.positions, &mut grad_table) {
                let grad_distances = grad_distances.unwrap_or_else(|| relative_shift_backward(grad_scores));
                let (position_query, table) = positions.chunk(first, count, inputs.key.dims()[2]);
                grad_position_query.push(grad_distances.clone().matmul(table));
                let part = grad_distances.swap_dims(2, 3).matmul(position_query).sum_dim(0);
                positions.add(sum, part, first, count);
            }
        }
        let joined = |parts: Vec<Tensor<4>>| (!parts.is_empty()).then(|| Tensor::cat(parts, 2));
        [joined(grad_query), grad_key, grad_value, joined(grad_position_query), grad_table]
    }
}

fn add(sum: &mut Option<Tensor<4>>, part: Tensor<4>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}

impl RelativePositions {
    /// Returns the index in the table of distances at which the distances of a chunk (`count` queries from index
    /// `first` on) begin: the number of queries after the chunk.
    fn start(&self, first: usize, count: usize) -> usize {
        self.query.dims()[2] - first - count
    }

    /// Cuts the inputs of the position term for a chunk, `count` queries from index `first` on. Returns the position
    /// queries of the chunk, and the rows of the table of distances that the chunk uses, expanded to all samples.
    fn chunk(&self, first: usize, count: usize, keys: usize) -> (Tensor<4>, Tensor<4>) {
        let position_query = self.query.clone().narrow(2, first, count);
        let table = self.table.clone().narrow(2, self.start(first, count), count - 1 + keys);
        let [b, h, _, w] = position_query.dims();
        let l = table.dims()[2];
        (position_query, table.expand([b, h, l, w]))
    }

    /// Adds `part`, the gradient of the table rows that a chunk (`count` queries from index `first` on) uses, to `sum`,
    /// the gradient of the whole table of distances.
    fn add(&self, sum: &mut Tensor<4>, part: Tensor<4>, first: usize, count: usize) {
        let [_, h, l, w] = part.dims();
        let start = self.start(first, count);
        let range = [0..1, 0..h, start..start + l, 0..w];
        let before = sum.clone().slice(range.clone());
        *sum = sum.clone().slice_assign(range, before + part);
    }
}

type Tracked<B> = FloatTensor<Autodiff<B>>;

fn on_tape<B: PrimitiveBackend>(inputs: AttentionInputs, op: ChunkedAttention) -> Tensor<4> {
    let device = inputs.query.device();
    let track = |x: Tensor<4>| -> Tracked<B> {
        let plain = B::plain;
        if x.is_autodiff() { B::tracked(x) } else { B::tracked(B::constant::<4>(plain(x))) }
    };
    let untracked = |x: &Tracked<B>| B::from_plain::<4>(x.clone().into_primitive());
    let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(track);
    let positions = inputs.positions.map(|positions| [positions.query, positions.table].map(track));
    let plain = AttentionInputs {
        query: untracked(&query),
        key: untracked(&key),
        value: untracked(&value),
        positions: positions
            .as_ref()
            .map(|[query, table]| RelativePositions { query: untracked(query), table: untracked(table) }),
    };
    let output = B::plain(op.forward(&plain));
    let placeholder = |device: &Device| B::tracked(Tensor::<4>::zeros([1; 4], device));
    let [position_query, table] = positions.unwrap_or_else(|| [placeholder(&device), placeholder(&device)]);
    let nodes = [query, key, value, position_query, table].map(|x| x.node());
    B::from_tracked(match Step::<B>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((op, plain), output),
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

#[derive(Debug)]
struct Step<B>(PhantomData<B>);

impl<B: PrimitiveBackend> Backward<B, 5> for Step<B> {
    type State = (ChunkedAttention, AttentionInputs);

    fn backward(self, ops: Ops<Self::State, 5>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = B::from_plain::<4>(gradients.consume::<B>(&ops.node));
        let (op, inputs) = ops.state;
        for (parent, found) in ops.parents.iter().zip(op.backward(&inputs, &grad_output)) {
            if let (Some(parent), Some(found)) = (parent, found) {
                gradients.register::<B>(parent.id, B::plain(found));
            }
        }
    }
}
