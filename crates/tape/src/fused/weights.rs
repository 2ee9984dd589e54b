//! Attention weights: mask, softmax and dropout in one pass over the scores.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::{Bool, DType, Device, FloatDType, Int, Shape, Tensor, TensorData, activation};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use rayon::prelude::*;

use super::rows::{drop_values, row_gradient, softmax_in_place};
use super::shift::{relative_shift, relative_shift_backward};
use crate::Noise;
use crate::bridge::{PrimitiveBackend, on_backend};
use crate::capture::placeholder_bools;
use crate::host::{HostBackend, InPlaceArgs, MaybeTracked, is_host, on_host};
use crate::kernels::{KernelBackend, WeightsRule, on_kernels};
use crate::noise::{Mask, dropout_drawn, ints};
use crate::simd::vectorized;
use crate::transfer::Constants;
use crate::transfer::uploaded;

// Shapes: b samples, h heads, q queries, k keys.

/// Score of a hidden key. Softmax turns it into exactly zero, and it is finite in 16 bits.
const MASKED: f32 = -3e4;

/// Mask of attention: the keys that each query may attend to.
#[derive(Clone, Debug)]
pub struct AttentionMask {
    /// Number of valid keys of each sample; later keys are padding.
    pub key_lengths: Arc<[u32]>,
    /// Whether a query sees only the keys up to its own position.
    pub causal: bool,
    /// Position in the whole sequence of the first query: greater than zero in a chunk, or after cached frames.
    pub first_query: usize,
    /// Tensors of the batch, which layers share: a device other than the CPU keeps the mask there.
    pub constants: Constants,
}

impl AttentionMask {
    /// Makes the mask of the padding of sequences that are padded to `width`: `[samples, width]`, true in the padding. `None` if
    /// no sequence is padded.
    pub fn padding(&self, width: usize, device: &Device) -> Option<Tensor<2, Bool>> {
        let (lengths, constants) = (&self.key_lengths, &self.constants);
        let shape = [lengths.len(), width];
        let make = || {
            let row: Tensor<1, Int> = Tensor::arange(0..width as i64, device);
            let column: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
            let column = Tensor::<2, Int>::from_data(uploaded(TensorData::new(column, [lengths.len(), 1])), device);
            row.unsqueeze_dim::<2>(0).expand(shape).greater_equal(column.expand(shape))
        };
        let is_padded = lengths.iter().any(|&length| (length as usize) < width);
        let sizes: Vec<usize> = std::iter::once(width).chain(lengths.iter().map(|&length| length as usize)).collect();
        is_padded.then(|| constants.get("padding", &sizes, device, make))
    }

    /// Sets the padding of `x` `[samples, width, channels]` to zero.
    pub fn clear_padding(&self, x: Tensor<3>) -> Tensor<3> {
        let shape = x.dims();
        match self.padding(shape[1], &x.device()) {
            Some(padding) => x.mask_fill(padding.unsqueeze_dim::<3>(2).expand(shape), 0.0),
            None => x,
        }
    }

    /// Returns the number of valid keys of each sample on `device`, which all layers share.
    pub(crate) fn lengths(&self, device: &Device) -> Tensor<1, Int> {
        let lengths = &self.key_lengths;
        let sizes: Vec<usize> = lengths.iter().map(|&length| length as usize).collect();
        let made = || ints([lengths.len()], device, || lengths.to_vec());
        self.constants.get("key lengths", &sizes, device, made)
    }

    /// Returns how many of the `keys` keys, counted from the first key on, the query in row `row` of sample `sample`
    /// sees.
    pub(super) fn visible_keys(&self, sample: usize, row: usize, keys: usize) -> usize {
        let valid = (self.key_lengths[sample] as usize).min(keys);
        if self.causal { valid.min(self.first_query + row + 1) } else { valid }
    }
}

/// Computes the attention weights of scores `[samples, heads, queries, keys]`: softmax over the keys that `mask`
/// allows, then dropout with probability `rate`.
///
/// `by_distance` `[samples, heads, queries, queries - 1 + keys]` are scores by the distance of query and key, which are added.
/// Distances decrease along a row, beginning with that of the last query and the first key (Dai et al. 2019): query `i`
/// reads its row from index `queries - 1 - i` on.
///
/// Sums are in fp32 for every dtype of the scores; the weights have the dtype of the scores. A query that sees no key
/// has weights of zero.
pub fn attention_weights(
    scores: Tensor<4>,
    by_distance: Option<Tensor<4>>,
    mask: &AttentionMask,
    noise: &Noise,
    rate: f64,
) -> Tensor<4> {
    let op = WeightsOp { visibility: mask.clone(), dropout: noise.mask(rate, mask.first_query) };
    if is_host(&scores) {
        return on_host(shifted(scores, by_distance), op);
    }
    if !scores.is_autodiff() {
        return op.softmax_and_weights(scores, by_distance).1;
    }
    let device = scores.device();
    on_backend!(&device, B => match by_distance {
        Some(by_distance) => on_device::<B, 2>([scores, by_distance], op),
        None => on_device::<B, 1>([scores], op),
    })
}

/// Adds scores by distance to scores by key.
fn shifted(scores: Tensor<4>, by_distance: Option<Tensor<4>>) -> Tensor<4> {
    let keys = scores.dims()[3];
    match by_distance {
        Some(by_distance) => scores + relative_shift(by_distance, keys),
        None => scores,
    }
}

/// Operation that turns attention scores into attention weights: mask, softmax and dropout.
#[derive(Clone, Debug)]
pub(super) struct WeightsOp {
    pub(super) visibility: AttentionMask,
    pub(super) dropout: Option<Mask>,
}

impl WeightsOp {
    /// Computes the softmax of scores without autodiff, and the weights, which are the softmax after dropout. Both are
    /// the same tensor if nothing is dropped.
    pub(super) fn softmax_and_weights(
        &self,
        scores: Tensor<4>,
        by_distance: Option<Tensor<4>>,
    ) -> (Tensor<4>, Tensor<4>) {
        if is_host(&scores) {
            let shape = scores.dims();
            return on_host!(scores, B => {
                let (softmax, weights) = self.forward_on::<B>(B::plain(shifted(scores, by_distance)), shape);
                (B::from_plain(softmax), B::from_plain(weights))
            });
        }
        let device = scores.device();
        on_kernels!(
            &device,
            B => {
                let [samples, ..] = scores.dims();
                assert_eq!(samples, self.visibility.key_lengths.len(), "attention needs the length of each sample");
                self.dropout.iter().for_each(|mask| mask.check_samples(samples));
                let (lengths, keys) = (B::plain_ints(self.visibility.lengths(&device)), self.sample_keys(&device).map(B::plain_ints));
                let by_distance = by_distance.map(B::plain);
                let (softmax, weights) =
                    B::attention_weights(B::plain(scores), by_distance, lengths, keys, self.rule());
                (B::from_plain(softmax), B::from_plain(weights))
            },
            otherwise self.composed_with_dropout(shifted(scores, by_distance))
        )
    }

    fn sample_keys(&self, device: &Device) -> Option<Tensor<3, Int>> {
        self.dropout.as_ref().map(|mask| mask.sample_keys(device))
    }

    fn rule(&self) -> WeightsRule {
        let AttentionMask { causal, first_query, .. } = self.visibility;
        WeightsRule { causal, first_query: first_query as u32, dropout: self.dropout.as_ref().map(Mask::rule) }
    }

    /// Computes the softmax and the weights with Burn's operations, for every device.
    fn composed_with_dropout(&self, scores: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let Some(mask) = &self.dropout else {
            let softmax = self.composed(scores);
            return (softmax.clone(), softmax);
        };
        let drawn = mask.drawn_alone_for(&scores);
        let softmax = self.composed(scores);
        (softmax.clone(), dropout_drawn(softmax, mask.clone(), drawn))
    }

    /// Computes the gradient of the scores from `softmax` and the gradient of the weights, `grad_output`, without
    /// autodiff. If `by_distance`, a GPU returns the gradient of the scores by distance, too; elsewhere it is that of the scores
    /// [turned back](relative_shift_backward).
    pub(super) fn gradient(
        &self,
        softmax: Tensor<4>,
        grad_output: Tensor<4>,
        by_distance: bool,
    ) -> (Tensor<4>, Option<Tensor<4>>) {
        if is_host(&grad_output) && is_host(&softmax) {
            let shape = grad_output.dims();
            let gradient = on_host!(grad_output, B => {
                let softmax = B::contiguous(B::plain(softmax));
                B::from_plain(self.backward_on::<B>(&softmax, B::plain(grad_output), shape))
            });
            return (gradient, None);
        }
        let device = grad_output.device();
        on_kernels!(
            &device,
            B => {
                let keys = self.sample_keys(&device).map(B::plain_ints);
                let (gradient, distances) =
                    B::attention_weights_back(B::plain(softmax), B::plain(grad_output), keys, self.rule(), by_distance);
                (B::from_plain(gradient), distances.map(B::from_plain))
            },
            otherwise (self.composed_gradient(softmax, grad_output), None)
        )
    }

    /// Computes the gradient of the scores with Burn's operations, for every device.
    fn composed_gradient(&self, softmax: Tensor<4>, grad_output: Tensor<4>) -> Tensor<4> {
        let dtype = grad_output.dtype();
        let low = matches!(dtype, DType::F16 | DType::BF16);
        let drawn = self.dropout.as_ref().and_then(|mask| mask.drawn_alone_for(&grad_output));
        let fp32 = |x: Tensor<4>| if low { x.cast(FloatDType::F32) } else { x };
        let (softmax, grad_output) = (fp32(softmax), fp32(grad_output));
        let grad_output = match self.dropout.clone() {
            Some(mask) => dropout_drawn(grad_output, mask, drawn),
            None => grad_output,
        };
        let along = (grad_output.clone() * softmax.clone()).sum_dim(3);
        let gradient = softmax * (grad_output - along);
        match dtype {
            DType::F16 => gradient.cast(FloatDType::F16),
            DType::BF16 => gradient.cast(FloatDType::BF16),
            _ => gradient,
        }
    }

    /// Computes the softmax over the visible keys with Burn's operations, for every device.
    fn composed(&self, scores: Tensor<4>) -> Tensor<4> {
        let dtype = scores.dtype();
        let low = matches!(dtype, DType::F16 | DType::BF16);
        let scores = if low { scores.cast(FloatDType::F32) } else { scores };
        let [b, _, q, k] = scores.dims();
        let all_visible = !self.visibility.causal && self.visibility.key_lengths.iter().all(|&keys| keys as usize >= k);
        let softmax = if all_visible { activation::softmax(scores, 3) } else { self.masked(scores, [b, q, k]) };
        match dtype {
            DType::F16 => softmax.cast(FloatDType::F16),
            DType::BF16 => softmax.cast(FloatDType::BF16),
            _ => softmax,
        }
    }

    fn masked(&self, scores: Tensor<4>, [b, q, k]: [usize; 3]) -> Tensor<4> {
        // A causal mask has one row per query; otherwise one row serves all queries.
        let rows = if self.visibility.causal { q } else { 1 };
        let device = scores.device();
        let lengths = self.visibility.key_lengths.iter().map(|&length| length as usize);
        let (causal, first) = (usize::from(self.visibility.causal), self.visibility.first_query);
        let sizes: Vec<usize> = [rows, k, causal, first * causal].into_iter().chain(lengths).collect();
        let hidden = self.visibility.constants.get("hidden keys", &sizes, &device, || {
            placeholder_bools([b, 1, rows, k], &device).unwrap_or_else(|| {
                let seen =
                    (0..b).flat_map(|sample| (0..rows).map(move |row| self.visibility.visible_keys(sample, row, k)));
                let hidden: Vec<bool> = seen.flat_map(|seen| (0..k).map(move |key| key >= seen)).collect();
                Tensor::<4, Bool>::from_data(uploaded(TensorData::new(hidden, [b, 1, rows, k])), &device)
            })
        });
        let hidden = hidden.expand(scores.dims());
        // Filled twice, so that a query without visible keys gets zeros instead of equal weights.
        activation::softmax(scores.mask_fill(hidden.clone(), MASKED), 3).mask_fill(hidden, 0.0)
    }
}

/// Returns the number of rows of scores, each `width` values long, that one parallel task takes. A thread with fewer
/// than a few thousand values costs more time than it saves.
fn rows_per_task(width: usize) -> usize {
    (1_usize << 14).div_ceil(width.max(1))
}

/// What dropout needs to drop values row by row: the random-number key of each row, the threshold that a random number
/// is compared with, and the factor for the kept values.
pub(super) type DroppedRows = (Vec<[u32; 2]>, u32, f32);

/// Returns what drops values of scores of `shape` row by row; `None` without dropout.
pub(super) fn dropped_rows(dropout: Option<&Mask>, shape: [usize; 4]) -> Option<DroppedRows> {
    dropout.map(|mask| (mask.row_keys(&shape), mask.threshold(), mask.scale()))
}

impl WeightsOp {
    fn dropped_rows(&self, shape: [usize; 4]) -> Option<DroppedRows> {
        dropped_rows(self.dropout.as_ref(), shape)
    }

    /// Replaces each row of `scores` by its softmax, and writes the softmax after dropout to `weights`. Without
    /// dropout, `weights` is empty.
    fn forward(&self, scores: &mut [f32], weights: &mut [f32], [b, h, q, k]: [usize; 4]) {
        let task_rows = rows_per_task(k);
        let dropped_rows = self.dropped_rows([b, h, q, k]);
        // Without dropout the weights are the softmax, and `weights` is empty.
        let weight_chunks: Vec<&mut [f32]> = match weights.is_empty() {
            true => scores.chunks(task_rows * k).map(|_| &mut [][..]).collect(),
            false => weights.chunks_mut(task_rows * k).collect(),
        };
        scores.par_chunks_mut(task_rows * k).zip(weight_chunks).enumerate().for_each(|(chunk, (scores, weights))| {
            vectorized(
                #[inline(always)]
                || {
                    for (row, scores) in scores.chunks_exact_mut(k).enumerate() {
                        let index = chunk * task_rows + row;
                        let (seen, hidden) =
                            scores.split_at_mut(self.visibility.visible_keys(index / (h * q), index % q, k));
                        hidden.fill(0.0);
                        softmax_in_place(seen);
                        if let Some((keys, threshold, scale)) = &dropped_rows {
                            let weights = &mut weights[row * k..(row + 1) * k];
                            weights.copy_from_slice(scores);
                            drop_values(weights, keys[index], *threshold, *scale);
                        }
                    }
                },
            );
        });
    }

    /// Replaces the gradient `g` of the weights by the gradient of the scores: `p * (g - sum(p * g))` along each row,
    /// where `p` is the softmax and `g` is taken after dropout.
    fn backward(&self, softmax: &[f32], grad_output: &mut [f32], shape: [usize; 4]) {
        let k = shape[3];
        let task_rows = rows_per_task(k);
        let dropped_rows = self.dropped_rows(shape);
        grad_output.par_chunks_mut(task_rows * k).zip(softmax.par_chunks(task_rows * k)).enumerate().for_each(
            |(chunk, (grad_output, softmax))| {
                vectorized(
                    #[inline(always)]
                    || {
                        let rows = grad_output.chunks_exact_mut(k).zip(softmax.chunks_exact(k));
                        for (row, (gradient, softmax)) in rows.enumerate() {
                            let rule = |(keys, threshold, scale): &DroppedRows| {
                                (keys[chunk * task_rows + row], *threshold, *scale)
                            };
                            row_gradient(softmax, gradient, dropped_rows.as_ref().map(rule));
                        }
                    },
                );
            },
        );
    }
}

/// Computes the weights as one operation of the tape, which keeps the softmax and nothing else. `inputs` are the scores by
/// key, and scores by distance if there are any.
fn on_device<B: PrimitiveBackend, const N: usize>(inputs: [Tensor<4>; N], op: WeightsOp) -> Tensor<4> {
    let inputs = inputs.map(MaybeTracked::<B>::new);
    let mut plain = inputs.each_ref().map(MaybeTracked::primitive).into_iter().map(B::from_plain::<4>);
    let nodes = inputs.map(|input| input.tracked().node());
    let scores = plain.next().expect("there are scores");
    let (softmax, weights) = op.softmax_and_weights(scores, plain.next());
    let step = DeviceStep::<B>(PhantomData).prepare::<NoCheckpointing>(nodes).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish((op, B::plain(softmax)), B::plain(weights)),
        OpsKind::UnTracked(step) => step.finish(B::plain(weights)),
    })
}

#[derive(Debug)]
struct DeviceStep<B>(PhantomData<B>);

impl<B: PrimitiveBackend, const N: usize> Backward<B, N> for DeviceStep<B> {
    type State = (WeightsOp, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output: Tensor<4> = B::from_plain(gradients.consume::<B>(&ops.node));
        let (op, softmax) = ops.state;
        let by_distance = ops.parents.get(1).is_some_and(Option::is_some);
        let (gradient, distances) = op.gradient(B::from_plain(softmax), grad_output, by_distance);
        let distances = distances.or_else(|| by_distance.then(|| relative_shift_backward(gradient.clone())));
        for (parent, gradient) in ops.parents.iter().zip([Some(gradient), distances]) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, B::plain(gradient));
            }
        }
    }
}

fn on_host(scores: Tensor<4>, op: WeightsOp) -> Tensor<4> {
    let shape = scores.dims();
    if !scores.is_autodiff() {
        return on_host!(scores, B => B::from_plain(op.forward_on::<B>(B::plain(scores), shape).1));
    }
    on_host!(scores, B => on_tape::<B>(scores, op))
}

fn on_tape<B: HostBackend>(scores: Tensor<4>, op: WeightsOp) -> Tensor<4> {
    let shape = scores.dims();
    // `into_parts` releases the graph's reference, so that the softmax can be written over the scores.
    let (scores, node) = B::tracked(scores).into_parts();
    let (softmax, weights) = op.forward_on::<B>(scores, shape);
    let step = Step::<B>(PhantomData).prepare::<NoCheckpointing>([node]).compute_bound().stateful();
    B::from_tracked(match step {
        OpsKind::Tracked(step) => step.finish((op, softmax), weights),
        OpsKind::UnTracked(step) => step.finish(weights),
    })
}

impl WeightsOp {
    /// Computes the softmax and the attention weights, and writes the softmax over `scores` if `scores` has no other
    /// owner. Both results are the same tensor if there is no dropout.
    fn forward_on<B: HostBackend>(
        &self,
        scores: FloatTensor<B>,
        shape: [usize; 4],
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let second_output = self.dropout.as_ref().map(|_| Shape::new(shape));
        let args = InPlaceArgs { inputs: &[], second_output, scratch: self.scratch(shape) };
        let forward = |scores: &mut [f32], weights: &mut [f32], _: &[&[f32]]| self.forward(scores, weights, shape);
        let (softmax, weights) = B::change_in_place("attention_weights", scores, args, forward);
        let weights = weights.unwrap_or_else(|| softmax.clone());
        (softmax, weights)
    }

    /// Computes the gradient of the scores and writes it over `grad_output` if `grad_output` has no other owner.
    fn backward_on<B: HostBackend>(
        &self,
        softmax: &FloatTensor<B>,
        grad_output: FloatTensor<B>,
        shape: [usize; 4],
    ) -> FloatTensor<B> {
        let args = InPlaceArgs { inputs: &[softmax], second_output: None, scratch: self.scratch(shape) };
        let backward =
            |grad_output: &mut [f32], _: &mut [f32], inputs: &[&[f32]]| self.backward(inputs[0], grad_output, shape);
        B::change_in_place("attention_weights", grad_output, args, backward).0
    }

    /// Computes the bytes of temporary memory of the operation: the random-number keys of all rows if there is dropout.
    fn scratch(&self, shape: [usize; 4]) -> usize {
        self.dropout.as_ref().map_or(0, |_| Mask::scratch(&shape))
    }
}

#[derive(Debug)]
struct Step<B>(PhantomData<B>);

impl<B: HostBackend> Backward<B, 1> for Step<B> {
    type State = (WeightsOp, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad_output = gradients.consume::<B>(&ops.node);
        let (op, softmax) = ops.state;
        let Some(parent) = &ops.parents[0] else { return };
        let shape = grad_output.shape().dims();
        let gradient = op.backward_on::<B>(&B::contiguous(softmax), grad_output, shape);
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

    /// Computes attention weights and the gradient of the scores: in fp32 on the path of the CPU if `host`, otherwise
    /// in fp64 on the path of other devices.
    fn results(host: bool, mask: &AttentionMask, rate: f64) -> [TensorData; 2] {
        let device = Device::flex().autodiff();
        let x = scores(&device);
        let x = if host { x.cast(FloatDType::F32) } else { x }.detach().require_grad();
        let noise = Noise::new(Key::new(7), &[SampleId(1), SampleId(2)]);
        let y = attention_weights(x.clone(), None, mask, &noise, rate);
        let grads = (y.clone().square() * (y.clone() + 1.0)).sum().backward();
        [y.into_data(), x.grad(&grads).unwrap().into_data()].map(|data| data.convert::<f32>())
    }

    #[test]
    fn host_and_device_compute_the_same_weights() {
        for (keys, causal, first, rate) in [
            ([5, 5], false, 0, 0.0),
            ([3, 5], false, 0, 0.0),
            ([5, 2], true, 0, 0.0),
            ([4, 5], true, 1, 0.3),
            ([0, 5], false, 0, 0.3),
        ] {
            let constants = Constants::default();
            let mask = AttentionMask { key_lengths: keys.into(), causal, first_query: first, constants };
            for (ours, theirs) in results(true, &mask, rate).iter().zip(&results(false, &mask, rate)) {
                ours.assert_approx_eq::<f32>(theirs, Tolerance::absolute(1e-5));
            }
        }
    }

    /// Computes attention weights on `device` in `dtype`, and the gradients of the scores and of the scores by distance. The
    /// layout of all is turned around if `turned`.
    #[cfg(feature = "wgpu")]
    fn on(device: &Device, case: &Case, dtype: FloatDType, turned: bool) -> Vec<Vec<f32>> {
        let Case { shape: [b, h, q, k], by_distance, mask, rate } = case;
        let leaf = |key: u64, width: usize| {
            let count = (b * h * q * width) as u64;
            let values: Vec<f32> = (0..count).map(|i| Key::new(key).at(i).unit() as f32 * 8.0 - 4.0).collect();
            let x = Tensor::<4>::from_data(TensorData::new(values, [*b, *h, *q, width]), device);
            x.cast(dtype).require_grad()
        };
        let other_layout = |x: Tensor<4>| match turned {
            // Twice the same: the values stay, and the memory is read in another order.
            true => Tensor::cat(vec![x.clone().swap_dims(2, 3)], 0).mul_scalar(1.0).swap_dims(2, 3),
            false => x,
        };
        let scores = leaf(1, *k);
        let distances = by_distance.then(|| leaf(2, q - 1 + k));
        let samples: Vec<SampleId> = (0..*b as u64).map(SampleId).collect();
        let noise = Noise::new(Key::new(7), &samples).with("here");
        let mask = AttentionMask { constants: Constants::default(), ..mask.clone() };
        let y =
            attention_weights(other_layout(scores.clone()), distances.clone().map(other_layout), &mask, &noise, *rate);
        let wide = y.clone().cast(FloatDType::F32);
        let grads = (wide.clone().square() * (wide + 1.0)).sum().backward();
        let read = |x: Tensor<4>| x.cast(FloatDType::F32).into_data().try_to_vec::<f32>().unwrap();
        let gradients = std::iter::once(&scores).chain(&distances).map(|x| read(x.grad(&grads).unwrap()));
        let gradients: Vec<Vec<f32>> = gradients.collect();
        std::iter::once(read(y.without_autodiff())).chain(gradients).collect()
    }

    #[cfg(feature = "wgpu")]
    struct Case {
        shape: [usize; 4],
        by_distance: bool,
        mask: AttentionMask,
        rate: f64,
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn kernels_equal_the_operations_of_the_cpu() {
        let cpu = Device::flex().autodiff();
        let gpu = Device::wgpu(burn::tensor::DeviceKind::DefaultDevice).autodiff();
        let mut draw = (0..).map(|index| Key::new(5).at(index).bits() as usize);
        let mut below = move |limit: usize| draw.next().expect("draws never end") % limit;
        for round in 0..12 {
            let shape @ [b, _, _, k] = [1 + below(3), 1 + below(4), 1 + below(70), 1 + below(90)];
            let key_lengths = (0..b).map(|_| below(k + 2) as u32).collect();
            let (causal, first_query) = (round % 3 == 0, if round % 2 == 0 { 0 } else { below(9) });
            let mask = AttentionMask { key_lengths, causal, first_query, constants: Constants::default() };
            let rate = if round % 4 < 2 { 0.0 } else { 0.3 };
            let case = Case { shape, by_distance: round % 5 < 3, mask, rate };
            let expected = on(&cpu, &case, FloatDType::F32, false);
            let bounds =
                [(FloatDType::F32, false, 1e-5), (FloatDType::F32, true, 1e-5), (FloatDType::F16, false, 1e-2)];
            for (dtype, turned, bound) in bounds {
                let found = on(&gpu, &case, dtype, turned);
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    let largest = expected.iter().fold(1.0_f32, |largest, x| largest.max(x.abs()));
                    let far = found.iter().zip(expected).find(|(a, b)| (*a - *b).abs() > bound * largest);
                    assert_eq!(far, None, "round {round}, {dtype:?}, {shape:?}");
                    assert_eq!(found.len(), expected.len());
                }
            }
        }
    }
}
