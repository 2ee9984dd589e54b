//! Exact attention from a chunk of queries at a time: memory that grows with the length, and not with its square.
//!
//! The forward pass keeps queries, keys and values. The backward pass computes the weights of a chunk again and uses them
//! up before it goes on to the next. What the chunks outputs is not computed again: placeholder in the backward pass reads it.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use burn::tensor::{Device, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::autodiff::Autodiff;

use super::shift::{relative_shift, relative_shift_backward};
use super::weights::{AttentionMask, WeightsOp};
use crate::Noise;
use crate::bridge::{PrimitiveBackend, on_backend};

// Shapes: b batch, h heads, q queries, k keys, w width of a head.

/// What attention is computed from. The queries are scaled already.
#[derive(Clone, Debug)]
pub struct AttentionInputs {
    /// `[b, h, q, w]`.
    pub query: Tensor<4>,
    /// `[b, h, k, w]`.
    pub key: Tensor<4>,
    /// `[b, h, k, w]`.
    pub value: Tensor<4>,
    /// What relative attention adds to the scores.
    pub positions: Option<RelativePositions>,
}

/// The part of the scores that depends on distances.
#[derive(Clone, Debug)]
pub struct RelativePositions {
    /// The queries as they position_query at distances, scaled, `[b, h, q, w]`.
    pub query: Tensor<4>,
    /// What they position_query at, `[1, h, q - 1 + k, w]`, from the longest distance back to the longest ahead.
    pub table: Tensor<4>,
}

/// The values `[b, h, q, w]` that every query sees, weighted: attention over `parts`, `chunk` queries at a time.
///
/// The same as scores, [`attention_weights`](super::attention_weights) and a product with the values, dropout included,
/// and the same gradients. All parts are in the same numbers; sums are in fp32.
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

/// The gradients by query, key, value, and by the query and the table of the positions.
type InputGradients = [Option<Tensor<4>>; 5];

impl ChunkedAttention {
    /// The first query of each chunk and how many there are.
    fn chunks(&self, queries: usize) -> impl Iterator<Item = (usize, usize)> {
        let chunk = self.chunk;
        (0..queries).step_by(chunk).map(move |first| (first, chunk.min(queries - first)))
    }

    fn weights(&self, first: usize) -> WeightsOp {
        let visibility = AttentionMask { first_query: self.mask.first_query + first, ..self.mask.clone() };
        WeightsOp { dropout: self.noise.mask(self.rate, visibility.first_query), visibility }
    }

    /// Softmax and weights of a chunk.
    fn softmax_and_weights(&self, inputs: &AttentionInputs, first: usize, count: usize) -> (Tensor<4>, Tensor<4>) {
        let query = inputs.query.clone().narrow(2, first, count);
        let mut scores = query.matmul(inputs.key.clone().swap_dims(2, 3));
        if let Some(positions) = &inputs.positions {
            let (position_query, table) = positions.chunk(first, count, inputs.key.dims()[2]);
            let keys = inputs.key.dims()[2];
            scores = scores + relative_shift(position_query.matmul(table.swap_dims(2, 3)), keys);
        }
        self.weights(first).softmax_and_weights(scores)
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
            let grad_scores = self.weights(first).gradient(softmax, grad_weights);
            grad_query.push(grad_scores.clone().matmul(inputs.key.clone()));
            let query = inputs.query.clone().narrow(2, first, count);
            add(&mut grad_key, grad_scores.clone().swap_dims(2, 3).matmul(query));
            if let (Some(positions), Some(sum)) = (&inputs.positions, &mut grad_table) {
                let (position_query, table) = positions.chunk(first, count, inputs.key.dims()[2]);
                let grad_distances = relative_shift_backward(grad_scores);
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
    /// Where the distances of a chunk begin in the table: its last query is so much before the last of all.
    fn start(&self, first: usize, count: usize) -> usize {
        self.query.dims()[2] - first - count
    }

    /// What the queries of a chunk position_query at, and the part of the table that they see, for every sample.
    fn chunk(&self, first: usize, count: usize, keys: usize) -> (Tensor<4>, Tensor<4>) {
        let position_query = self.query.clone().narrow(2, first, count);
        let table = self.table.clone().narrow(2, self.start(first, count), count - 1 + keys);
        let [b, h, _, w] = position_query.dims();
        let l = table.dims()[2];
        (position_query, table.expand([b, h, l, w]))
    }

    /// Adds a chunk's part to the gradient by the table.
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
