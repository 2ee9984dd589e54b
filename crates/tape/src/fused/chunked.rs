//! Exact attention from a chunk of queries at a time: memory that grows with the length, and not with its square.
//!
//! The forward pass keeps queries, keys and values. The backward pass computes the weights of a chunk again and uses them
//! up before it goes on to the next. What the chunks mixed is not computed again: nothing in the backward pass reads it.

use std::marker::PhantomData;
use std::num::NonZeroU32;

use burn::tensor::{Device, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_dispatch::backends::autodiff::Autodiff;

use super::shift::{relative_shift, shifted_back};
use super::weights::{Sight, Weights};
use crate::Noise;
use crate::bridge::{Surface, on_backend};

// Shapes: b batch, h heads, q queries, k keys, w width of a head.

/// What attention is computed from. The queries are scaled already.
#[derive(Clone, Debug)]
pub struct Attended {
    /// `[b, h, q, w]`.
    pub query: Tensor<4>,
    /// `[b, h, k, w]`.
    pub key: Tensor<4>,
    /// `[b, h, k, w]`.
    pub value: Tensor<4>,
    /// What relative attention adds to the scores.
    pub offsets: Option<Offsets>,
}

/// The part of the scores that depends on distances.
#[derive(Clone, Debug)]
pub struct Offsets {
    /// The queries as they look at distances, scaled, `[b, h, q, w]`.
    pub query: Tensor<4>,
    /// What they look at, `[1, h, q - 1 + k, w]`, from the longest distance back to the longest ahead.
    pub table: Tensor<4>,
}

/// The values `[b, h, q, w]` that every query sees, weighted: attention over `parts`, `chunk` queries at a time.
///
/// The same as scores, [`attention_weights`](super::attention_weights) and a product with the values, dropout included,
/// and the same gradients. All parts are in the same numbers; sums are in fp32.
pub fn chunked_attention(parts: Attended, sight: &Sight, noise: &Noise, rate: f64, chunk: NonZeroU32) -> Tensor<4> {
    let plan = Plan { sight: sight.clone(), noise: noise.clone(), rate, chunk: chunk.get() as usize };
    let device = parts.query.device();
    if !device.is_autodiff() {
        return plan.forward(&parts);
    }
    on_backend!(&device, B => on_tape::<B>(parts, plan))
}

#[derive(Clone, Debug)]
struct Plan {
    sight: Sight,
    noise: Noise,
    rate: f64,
    chunk: usize,
}

/// The gradients by query, key, value, and by the query and the table of the offsets.
type Found = [Option<Tensor<4>>; 5];

impl Plan {
    /// The first query of each chunk and how many there are.
    fn chunks(&self, queries: usize) -> impl Iterator<Item = (usize, usize)> {
        let chunk = self.chunk;
        (0..queries).step_by(chunk).map(move |first| (first, chunk.min(queries - first)))
    }

    fn weights(&self, first: usize) -> Weights {
        let sight = Sight { first: self.sight.first + first, ..self.sight.clone() };
        Weights { mask: self.noise.mask(self.rate, sight.first), sight }
    }

    /// Softmax and weights of a chunk.
    fn both(&self, parts: &Attended, first: usize, count: usize) -> (Tensor<4>, Tensor<4>) {
        let query = parts.query.clone().narrow(2, first, count);
        let mut scores = query.matmul(parts.key.clone().swap_dims(2, 3));
        if let Some(offsets) = &parts.offsets {
            let (look, table) = offsets.of(first, count, parts.key.dims()[2]);
            let keys = parts.key.dims()[2];
            scores = scores + relative_shift(look.matmul(table.swap_dims(2, 3)), keys);
        }
        self.weights(first).both(scores)
    }

    fn forward(&self, parts: &Attended) -> Tensor<4> {
        let chunks = self.chunks(parts.query.dims()[2]);
        let mixed = chunks.map(|(first, count)| self.both(parts, first, count).1.matmul(parts.value.clone()));
        Tensor::cat(mixed.collect(), 2)
    }

    fn backward(&self, parts: &Attended, above: &Tensor<4>) -> Found {
        let (mut by_query, mut by_look) = (Vec::new(), Vec::new());
        let (mut by_key, mut by_value): (Option<Tensor<4>>, Option<Tensor<4>>) = (None, None);
        let mut by_table = parts.offsets.as_ref().map(|offsets| Tensor::zeros_like(&offsets.table));
        for (first, count) in self.chunks(parts.query.dims()[2]) {
            let above = above.clone().narrow(2, first, count);
            let (softmax, weights) = self.both(parts, first, count);
            add(&mut by_value, weights.swap_dims(2, 3).matmul(above.clone()));
            let by_weights = above.matmul(parts.value.clone().swap_dims(2, 3));
            let by_scores = self.weights(first).gradient(softmax, by_weights);
            by_query.push(by_scores.clone().matmul(parts.key.clone()));
            let query = parts.query.clone().narrow(2, first, count);
            add(&mut by_key, by_scores.clone().swap_dims(2, 3).matmul(query));
            if let (Some(offsets), Some(sum)) = (&parts.offsets, &mut by_table) {
                let (look, table) = offsets.of(first, count, parts.key.dims()[2]);
                let by_offsets = shifted_back(by_scores);
                by_look.push(by_offsets.clone().matmul(table));
                let part = by_offsets.swap_dims(2, 3).matmul(look).sum_dim(0);
                offsets.add(sum, part, first, count);
            }
        }
        let joined = |parts: Vec<Tensor<4>>| (!parts.is_empty()).then(|| Tensor::cat(parts, 2));
        [joined(by_query), by_key, by_value, joined(by_look), by_table]
    }
}

fn add(sum: &mut Option<Tensor<4>>, part: Tensor<4>) {
    *sum = Some(match sum.take() {
        Some(sum) => sum + part,
        None => part,
    });
}

impl Offsets {
    /// Where the distances of a chunk begin in the table: its last query is so much before the last of all.
    fn start(&self, first: usize, count: usize) -> usize {
        self.query.dims()[2] - first - count
    }

    /// What the queries of a chunk look at, and the part of the table that they see, for every sample.
    fn of(&self, first: usize, count: usize, keys: usize) -> (Tensor<4>, Tensor<4>) {
        let look = self.query.clone().narrow(2, first, count);
        let table = self.table.clone().narrow(2, self.start(first, count), count - 1 + keys);
        let [b, h, _, w] = look.dims();
        let l = table.dims()[2];
        (look, table.expand([b, h, l, w]))
    }

    /// Adds a chunk's part to the gradient by the table.
    fn add(&self, sum: &mut Tensor<4>, part: Tensor<4>, first: usize, count: usize) {
        let [_, h, l, w] = part.dims();
        let start = self.start(first, count);
        let place = [0..1, 0..h, start..start + l, 0..w];
        let before = sum.clone().slice(place.clone());
        *sum = sum.clone().slice_assign(place, before + part);
    }
}

type Tracked<B> = FloatTensor<Autodiff<B>>;

fn on_tape<B: Surface>(parts: Attended, plan: Plan) -> Tensor<4> {
    let device = parts.query.device();
    let track = |x: Tensor<4>| -> Tracked<B> {
        let plain = B::plain;
        if x.is_autodiff() { B::tracked(x) } else { B::tracked(B::lifted::<4>(plain(x))) }
    };
    let off = |x: &Tracked<B>| B::from_plain::<4>(x.clone().into_primitive());
    let [query, key, value] = [parts.query, parts.key, parts.value].map(track);
    let offsets = parts.offsets.map(|offsets| [offsets.query, offsets.table].map(track));
    let plain = Attended {
        query: off(&query),
        key: off(&key),
        value: off(&value),
        offsets: offsets.as_ref().map(|[query, table]| Offsets { query: off(query), table: off(table) }),
    };
    let output = B::plain(plan.forward(&plain));
    let nothing = |device: &Device| B::tracked(Tensor::<4>::zeros([1; 4], device));
    let [look, table] = offsets.unwrap_or_else(|| [nothing(&device), nothing(&device)]);
    let nodes = [query, key, value, look, table].map(|x| x.node());
    B::from_tracked(match Step::<B>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((plan, plain), output),
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

#[derive(Debug)]
struct Step<B>(PhantomData<B>);

impl<B: Surface> Backward<B, 5> for Step<B> {
    type State = (Plan, Attended);

    fn backward(self, ops: Ops<Self::State, 5>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let above = B::from_plain::<4>(gradients.consume::<B>(&ops.node));
        let (plan, parts) = ops.state;
        for (parent, found) in ops.parents.iter().zip(plan.backward(&parts, &above)) {
            if let (Some(parent), Some(found)) = (parent, found) {
                gradients.register::<B>(parent.id, B::plain(found));
            }
        }
    }
}
