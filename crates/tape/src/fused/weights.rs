//! Attention weights: masked scores through a softmax and a dropout, in one pass over the scores.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::{Bool, DType, FloatDType, Shape, Tensor, TensorData, activation};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::activation::{exp, wide};
use super::host::{Beside, Host, is_host, on_host};
use super::norm::sum;
use crate::Noise;
use crate::bridge::Surface;
use crate::noise::{Mask, draw, dropout};
use crate::record::unread_bools;

// Shapes: b samples, h heads, q queries, k keys.

/// A score that softmax turns into an exact zero, and that is still finite in 16 bits.
const MASKED: f32 = -3e4;

/// Which keys a query sees.
#[derive(Clone, Debug)]
pub struct Sight {
    /// How many keys of each sample are valid; those beyond are padding.
    pub keys: Arc<[u32]>,
    /// Whether a query sees only the keys up to its own place.
    pub causal: bool,
    /// The place of the first query: more than zero in a chunk, or behind a cache.
    pub first: usize,
}

impl Sight {
    /// How many keys, from the first on, the query in row `row` of sample `sample` sees.
    fn of(&self, sample: usize, row: usize, keys: usize) -> usize {
        let valid = (self.keys[sample] as usize).min(keys);
        if self.causal { valid.min(self.first + row + 1) } else { valid }
    }
}

/// Scores `[b, h, q, k]` to the weights of the keys: softmax over the keys in `sight`, then the dropout of `noise`.
///
/// The sums are in fp32 whatever the scores are in, and the weights come back in the numbers of the scores. A query
/// that sees no key at all has weights of zero.
pub fn attention_weights(scores: Tensor<4>, sight: &Sight, noise: &Noise, rate: f64) -> Tensor<4> {
    let op = Weights { sight: sight.clone(), mask: noise.mask(rate, sight.first) };
    if is_host(&scores) {
        return on_host(scores, op);
    }
    let softmax = op.composed(scores);
    match op.mask {
        Some(mask) => dropout(softmax, mask),
        None => softmax,
    }
}

/// What becomes of scores.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    pub(super) sight: Sight,
    pub(super) mask: Option<Mask>,
}

impl Weights {
    /// The softmax and the weights of scores off the tape: the same where nothing is dropped.
    pub(super) fn both(&self, scores: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        if is_host(&scores) {
            let shape = scores.dims();
            return on_host!(scores, B => {
                let (softmax, weights) = self.of::<B>(B::plain(scores), shape);
                (B::from_plain(softmax), B::from_plain(weights))
            });
        }
        let softmax = self.composed(scores);
        let weights = self.mask.clone().map_or_else(|| softmax.clone(), |mask| dropout(softmax.clone(), mask));
        (softmax, weights)
    }

    /// The gradient by the scores, off the tape, from that by the weights.
    pub(super) fn gradient(&self, softmax: Tensor<4>, above: Tensor<4>) -> Tensor<4> {
        if is_host(&above) && is_host(&softmax) {
            let shape = above.dims();
            return on_host!(above, B => {
                let softmax = B::contiguous(B::plain(softmax));
                B::from_plain(self.changed_back::<B>(&softmax, B::plain(above), shape))
            });
        }
        let above = self.mask.clone().map_or_else(|| above.clone(), |mask| dropout(above.clone(), mask));
        let along = (above.clone() * softmax.clone()).sum_dim(3);
        softmax * (above - along)
    }

    /// The softmax from Burn's own operations, for every device.
    fn composed(&self, scores: Tensor<4>) -> Tensor<4> {
        let dtype = scores.dtype();
        let low = matches!(dtype, DType::F16 | DType::BF16);
        let scores = if low { scores.cast(FloatDType::F32) } else { scores };
        let [b, _, q, k] = scores.dims();
        let everything = !self.sight.causal && self.sight.keys.iter().all(|&keys| keys as usize >= k);
        let softmax = if everything { activation::softmax(scores, 3) } else { self.masked(scores, [b, q, k]) };
        match dtype {
            DType::F16 => softmax.cast(FloatDType::F16),
            DType::BF16 => softmax.cast(FloatDType::BF16),
            _ => softmax,
        }
    }

    fn masked(&self, scores: Tensor<4>, [b, q, k]: [usize; 3]) -> Tensor<4> {
        // A causal mask has a row for each query, any other one row for all.
        let rows = if self.sight.causal { q } else { 1 };
        let told = || {
            let seen = (0..b).flat_map(|sample| (0..rows).map(move |row| self.sight.of(sample, row, k)));
            let hidden: Vec<bool> = seen.flat_map(|seen| (0..k).map(move |key| key >= seen)).collect();
            Tensor::<4, Bool>::from_data(TensorData::new(hidden, [b, 1, rows, k]), &scores.device())
        };
        let hidden = unread_bools([b, 1, rows, k], &scores.device()).unwrap_or_else(told).expand(scores.dims());
        // Filled twice: a query that sees nothing would otherwise look at everything.
        activation::softmax(scores.mask_fill(hidden.clone(), MASKED), 3).mask_fill(hidden, 0.0)
    }
}

/// Rows given to a thread at once: below some thousand values threads cost more than they give.
fn lines(width: usize) -> usize {
    (1_usize << 14).div_ceil(width.max(1))
}

/// The rows of a tensor's mask, its threshold and its scale.
type Dropped = (Vec<[u32; 2]>, u32, f32);

impl Weights {
    fn dropped(&self, shape: [usize; 4]) -> Option<Dropped> {
        self.mask.as_ref().map(|mask| (mask.rows(&shape), mask.threshold(), mask.scale()))
    }

    /// The softmax of every row of `scores`, in place, and in `weights` what a dropout leaves of it.
    fn forward(&self, scores: &mut [f32], weights: &mut [f32], [b, h, q, k]: [usize; 4]) {
        let lines = lines(k);
        let dropped = self.dropped([b, h, q, k]);
        // Without a dropout the weights are the softmax itself, and there is nothing to write them to.
        let pieces: Vec<&mut [f32]> = match weights.is_empty() {
            true => scores.chunks(lines * k).map(|_| &mut [][..]).collect(),
            false => weights.chunks_mut(lines * k).collect(),
        };
        scores.par_chunks_mut(lines * k).zip(pieces).enumerate().for_each(|(piece, (scores, weights))| {
            wide(
                #[inline(always)]
                || {
                    for (row, scores) in scores.chunks_exact_mut(k).enumerate() {
                        let place = piece * lines + row;
                        let (seen, hidden) = scores.split_at_mut(self.sight.of(place / (h * q), place % q, k));
                        hidden.fill(0.0);
                        softmax_row(seen);
                        if let Some((keys, threshold, scale)) = &dropped {
                            drop_row(&mut weights[row * k..(row + 1) * k], scores, keys[place], *threshold, *scale);
                        }
                    }
                },
            );
        });
    }

    /// The gradient by the scores, written over the one from `above`: `p * (g - sum(p * g))` along each row, `g` being
    /// what the dropout lets through.
    fn backward(&self, softmax: &[f32], above: &mut [f32], shape: [usize; 4]) {
        let k = shape[3];
        let lines = lines(k);
        let dropped = self.dropped(shape);
        above.par_chunks_mut(lines * k).zip(softmax.par_chunks(lines * k)).enumerate().for_each(
            |(piece, (above, softmax))| {
                wide(
                    #[inline(always)]
                    || {
                        let rows = above.chunks_exact_mut(k).zip(softmax.chunks_exact(k));
                        for (row, (gradient, softmax)) in rows.enumerate() {
                            if let Some((keys, threshold, scale)) = &dropped {
                                let key = keys[piece * lines + row];
                                for (place, g) in gradient.iter_mut().enumerate() {
                                    *g = if draw(key, place as u32) < *threshold { 0.0 } else { *g * scale };
                                }
                            }
                            let along = sum(gradient.iter().zip(softmax).map(|(g, p)| g * p));
                            gradient.iter_mut().zip(softmax).for_each(|(g, p)| *g = p * (*g - along));
                        }
                    },
                );
            },
        );
    }
}

#[inline(always)]
fn drop_row(kept: &mut [f32], values: &[f32], key: [u32; 2], threshold: u32, scale: f32) {
    for (place, (kept, value)) in kept.iter_mut().zip(values).enumerate() {
        *kept = if draw(key, place as u32) < threshold { 0.0 } else { value * scale };
    }
}

#[inline(always)]
fn softmax_row(scores: &mut [f32]) {
    let mut highest = [f32::NEG_INFINITY; 16];
    for (place, &score) in scores.iter().enumerate() {
        highest[place % 16] = if score > highest[place % 16] { score } else { highest[place % 16] };
    }
    let highest = highest.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = exp(*score - highest));
    let inverse = 1.0 / sum(scores.iter().copied());
    scores.iter_mut().for_each(|score| *score *= inverse);
}

fn on_host(scores: Tensor<4>, op: Weights) -> Tensor<4> {
    let shape = scores.dims();
    if !scores.is_autodiff() {
        return on_host!(scores, B => B::from_plain(op.of::<B>(B::plain(scores), shape).1));
    }
    on_host!(scores, B => on_tape::<B>(scores, op))
}

fn on_tape<B: Host>(scores: Tensor<4>, op: Weights) -> Tensor<4> {
    let shape = scores.dims();
    // Taken apart, so that nobody else holds the scores: the softmax is written over them.
    let (scores, node) = B::tracked(scores).into_parts();
    let (softmax, weights) = op.of::<B>(scores, shape);
    let step = Step::<B>(PhantomData).prepare::<NoCheckpointing>([node]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish((op, softmax), weights),
        OpsKind::UnTracked(step) => step.finish(weights),
    })
}

impl Weights {
    /// The softmax, and the weights: the same where nothing is dropped.
    fn of<B: Host>(&self, scores: FloatTensor<B>, shape: [usize; 4]) -> (FloatTensor<B>, FloatTensor<B>) {
        let fresh = self.mask.as_ref().map(|_| Shape::new(shape));
        let beside = Beside { inputs: &[], fresh, scratch: self.scratch(shape) };
        let forward = |scores: &mut [f32], weights: &mut [f32], _: &[&[f32]]| self.forward(scores, weights, shape);
        let (softmax, weights) = B::change("attention_weights", scores, beside, forward);
        let weights = weights.unwrap_or_else(|| softmax.clone());
        (softmax, weights)
    }

    /// The gradient by the scores, written over `above` where nobody else holds it.
    fn changed_back<B: Host>(
        &self,
        softmax: &FloatTensor<B>,
        above: FloatTensor<B>,
        shape: [usize; 4],
    ) -> FloatTensor<B> {
        let beside = Beside { inputs: &[softmax], fresh: None, scratch: self.scratch(shape) };
        let backward = |above: &mut [f32], _: &mut [f32], inputs: &[&[f32]]| self.backward(inputs[0], above, shape);
        B::change("attention_weights", above, beside, backward).0
    }

    /// Bytes of the keys of the mask's rows.
    fn scratch(&self, shape: [usize; 4]) -> usize {
        self.mask.as_ref().map_or(0, |_| Mask::scratch(&shape))
    }
}

#[derive(Debug)]
struct Step<B>(PhantomData<B>);

impl<B: Host> Backward<B, 1> for Step<B> {
    type State = (Weights, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let above = gradients.consume::<B>(&ops.node);
        let (op, softmax) = ops.state;
        let Some(parent) = &ops.parents[0] else { return };
        let shape = above.shape().dims();
        let gradient = op.changed_back::<B>(&B::contiguous(softmax), above, shape);
        gradients.register::<B>(parent.id, gradient);
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tolerance};
    use plimsoll_core::{Key, SampleId};

    use super::*;

    fn scores(device: &Device) -> Tensor<4> {
        let values: Vec<f64> = (0..2 * 3 * 4 * 5).map(|i| Key::new(2).at(i).unit() * 8.0 - 4.0).collect();
        Tensor::from_data(TensorData::new(values, [2, 3, 4, 5]), (device, DType::F64))
    }

    /// Weights and gradient on the host's own path, in fp32, or on that of every other device, in fp64.
    fn results(host: bool, sight: &Sight, rate: f64) -> [TensorData; 2] {
        let device = Device::flex().autodiff();
        let x = scores(&device);
        let x = if host { x.cast(FloatDType::F32) } else { x }.detach().require_grad();
        let noise = Noise::new(Key::new(7), &[SampleId(1), SampleId(2)]);
        let y = attention_weights(x.clone(), sight, &noise, rate);
        let grads = (y.clone().square() * (y.clone() + 1.0)).sum().backward();
        [y.into_data(), x.grad(&grads).unwrap().into_data()].map(|data| data.convert::<f32>())
    }

    #[test]
    fn the_host_computes_what_every_device_does() {
        for (keys, causal, first, rate) in [
            ([5, 5], false, 0, 0.0),
            ([3, 5], false, 0, 0.0),
            ([5, 2], true, 0, 0.0),
            ([4, 5], true, 1, 0.3),
            ([0, 5], false, 0, 0.3),
        ] {
            let sight = Sight { keys: keys.into(), causal, first };
            for (ours, theirs) in results(true, &sight, rate).iter().zip(&results(false, &sight, rate)) {
                ours.assert_approx_eq::<f32>(theirs, Tolerance::absolute(1e-5));
            }
        }
    }
}
