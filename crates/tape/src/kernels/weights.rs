//! Kernels of attention weights: relative shift, mask, softmax and dropout in one pass over the scores.
//!
//! They read tensors of any layout and allocate nothing but their results. Sums are in fp32. Random bits are computed where
//! they are needed, and no mask is stored.

use burn::tensor::Shape;
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::random::{DropArgs, random_bits, row_key, sample_high, sample_low};
use super::rows::{GROUP_ROWS, ROW_THREADS, largest_of_row, sum_of_row};
use super::{WeightsRule, address_of};
use crate::noise::STEPS;

// Shapes: b samples, h heads, q queries, k keys, l = q - 1 + k distances.

/// Less than every score.
const LOWEST: f32 = -3.0e38;

/// Computes the softmax of `scores` `[b, h, q, k]`, to which the scores `by_distance` `[b, h, q, l]` are added, over the first
/// `lengths` `[b]` keys, and the weights, which are the softmax after dropout. Without dropout there are no weights.
pub(super) fn weights(
    scores: CubeTensor,
    by_distance: Option<CubeTensor>,
    lengths: CubeTensor,
    keys: Option<CubeTensor>,
    rule: &WeightsRule,
) -> (CubeTensor, Option<CubeTensor>) {
    let shape = scores.shape();
    let new = || empty_device_dtype(scores.client.clone(), scores.device.clone(), shape.clone(), scores.dtype);
    let (softmax, dropped) = (new(), rule.dropout.map(|_| new()));
    if shape.num_elements() == 0 {
        return (softmax, dropped);
    }
    let (has_distance, dtype) = (by_distance.is_some(), dtype_to_storage_type(scores.dtype));
    // Where a tensor is missing, another takes its place, and the kernel is compiled without a use of it.
    let by_distance = by_distance.unwrap_or_else(|| scores.clone());
    let written = dropped.clone().unwrap_or_else(|| softmax.clone());
    let keys = keys.unwrap_or_else(|| lengths.clone());
    let address = address_of(&[&scores, &by_distance, &softmax]);
    let (drop, causal, first_query) = (DropArgs::new(rule.dropout), rule.causal, rule.first_query);
    weights_kernel::launch(
        &softmax.client,
        groups_of_rows(&shape),
        CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
        address,
        scores.into_tensor_arg(),
        by_distance.into_tensor_arg(),
        lengths.into_tensor_arg(),
        keys.into_tensor_arg(),
        softmax.clone().into_tensor_arg(),
        written.into_tensor_arg(),
        first_query,
        drop.low,
        drop.high,
        drop.first,
        drop.threshold,
        drop.scale,
        causal,
        has_distance,
        rule.dropout.is_some(),
        dtype,
    );
    (softmax, dropped)
}

/// Computes the gradient of the scores of [`weights`] from the softmax and the gradient of the weights. If `by_distance`,
/// also computes the gradient of the scores by distance.
pub(super) fn weights_back(
    softmax: CubeTensor,
    grad_output: CubeTensor,
    keys: Option<CubeTensor>,
    rule: &WeightsRule,
    by_distance: bool,
) -> (CubeTensor, Option<CubeTensor>) {
    let shape = softmax.shape();
    let new = |shape: Shape| empty_device_dtype(softmax.client.clone(), softmax.device.clone(), shape, softmax.dtype);
    let gradient = new(shape.clone());
    let distances = by_distance.then(|| new(super::distances_shape(&shape)));
    if shape.num_elements() == 0 {
        return (gradient, distances);
    }
    let dtype = dtype_to_storage_type(softmax.dtype);
    let written = distances.clone().unwrap_or_else(|| gradient.clone());
    let has_dropout = keys.is_some();
    let keys = keys.unwrap_or_else(|| softmax.clone());
    let address = address_of(&[&softmax, &grad_output, &written]);
    let drop = DropArgs::new(rule.dropout);
    weights_back_kernel::launch(
        &gradient.client,
        groups_of_rows(&shape),
        CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
        address,
        softmax.into_tensor_arg(),
        grad_output.into_tensor_arg(),
        keys.into_tensor_arg(),
        gradient.clone().into_tensor_arg(),
        written.into_tensor_arg(),
        drop.low,
        drop.high,
        drop.first,
        drop.threshold,
        drop.scale,
        by_distance,
        has_dropout,
        dtype,
    );
    (gradient, distances)
}

/// Returns how many groups of threads cover the rows of a tensor of `shape`.
fn groups_of_rows(shape: &Shape) -> CubeCount {
    CubeCount::new_3d(shape[2].div_ceil(GROUP_ROWS as usize) as u32, shape[1] as u32, shape[0] as u32)
}

/// Computes the number of a row of a mask, as on the CPU.
#[cube]
fn row_number(head: u32, query: u32) -> u32 {
    let steps = comptime!([STEPS[0], STEPS[1]]);
    head * comptime!(steps[0]) + query * comptime!(steps[1])
}

/// Reads the score of a key, with that of its distance. `place` and `distance_place` are those of the first key of the row.
#[cube]
fn score_at<E: Float>(
    scores: &Tensor<E>,
    by_distance: &Tensor<E>,
    place: usize,
    distance_place: usize,
    column: usize,
    #[comptime] has_distance: bool,
) -> f32 {
    let mut score = f32::cast_from(scores[place + column * scores.stride(3)]);
    if has_distance {
        score += f32::cast_from(by_distance[distance_place + column * by_distance.stride(3)]);
    }
    score
}

/// Reads the gradient of the softmax of a key: that of its weight, unless it was dropped. `low` and `high` are the key of the row.
#[cube]
fn grad_at<E: Float>(
    grad_output: &Tensor<E>,
    place: usize,
    column: usize,
    low: u32,
    high: u32,
    threshold: u32,
    scale: f32,
    #[comptime] has_dropout: bool,
) -> f32 {
    let mut grad = f32::cast_from(grad_output[place + column * grad_output.stride(3)]);
    if has_dropout {
        grad *= scale;
        if random_bits(low, high, column as u32) < threshold {
            grad = 0.0f32;
        }
    }
    grad
}

#[cube(launch, address_type = "dynamic")]
fn weights_kernel<E: Float>(
    scores: &Tensor<E>,
    by_distance: &Tensor<E>,
    lengths: &Tensor<i32>,
    keys: &Tensor<i32>,
    softmax: &mut Tensor<E>,
    weights: &mut Tensor<E>,
    first_query: u32,
    place_low: u32,
    place_high: u32,
    first_row: u32,
    threshold: u32,
    scale: f32,
    #[comptime] causal: bool,
    #[comptime] has_distance: bool,
    #[comptime] has_dropout: bool,
    #[define(E)] _dtype: ElemType,
) {
    let sample = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (queries, count) = (scores.shape(2), scores.shape(3));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    // Threads beyond the last row compute it once more and write nothing: all of a group take part in a sum.
    let is_row = row < queries;
    let row = min(row, queries - 1);
    let place = sample * scores.stride(0) + head * scores.stride(1) + row * scores.stride(2);
    let mut distance_place = 0usize;
    if has_distance {
        // The row of distances begins with the last query: it is read from the place of this one on.
        distance_place = sample * by_distance.stride(0)
            + head * by_distance.stride(1)
            + row * by_distance.stride(2)
            + (queries - 1 - row) * by_distance.stride(3);
    }
    let mut visible = min(lengths[sample] as usize, count);
    if causal {
        visible = min(visible, first_query as usize + row + 1);
    }

    let mut largest = f32::new(LOWEST);
    let mut column = UNIT_POS_X as usize;
    while column < visible {
        let score = score_at::<E>(scores, by_distance, place, distance_place, column, has_distance);
        largest = max(largest, score);
        column += ROW_THREADS as usize;
    }
    let largest = largest_of_row(&mut shared, largest);

    let mut sum = 0.0f32;
    let mut column = UNIT_POS_X as usize;
    while column < visible {
        let score = score_at::<E>(scores, by_distance, place, distance_place, column, has_distance);
        sum += (score - largest).exp();
        column += ROW_THREADS as usize;
    }
    let sum = sum_of_row(&mut shared, sum);

    if is_row {
        let to = sample * softmax.stride(0) + head * softmax.stride(1) + row * softmax.stride(2);
        let to_step = softmax.stride(3);
        let mut low = 0u32;
        let mut high = 0u32;
        if has_dropout {
            let of_sample = sample_low(keys, sample, place_low);
            let other = sample_high(keys, sample, place_high);
            let number = row_number(head as u32, first_row + row as u32);
            low = row_key(of_sample, other, number);
            high = other + number;
        }
        let mut column = UNIT_POS_X as usize;
        while column < count {
            let mut value = 0.0f32;
            if column < visible {
                let score = score_at::<E>(scores, by_distance, place, distance_place, column, has_distance);
                value = (score - largest).exp() / sum;
            }
            softmax[to + column * to_step] = E::cast_from(value);
            if has_dropout {
                let mut kept = value * scale;
                if random_bits(low, high, column as u32) < threshold {
                    kept = 0.0f32;
                }
                weights[to + column * to_step] = E::cast_from(kept);
            }
            column += ROW_THREADS as usize;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn weights_back_kernel<E: Float>(
    softmax: &Tensor<E>,
    grad_output: &Tensor<E>,
    keys: &Tensor<i32>,
    gradient: &mut Tensor<E>,
    by_distance: &mut Tensor<E>,
    place_low: u32,
    place_high: u32,
    first_row: u32,
    threshold: u32,
    scale: f32,
    #[comptime] has_distance: bool,
    #[comptime] has_dropout: bool,
    #[define(E)] _dtype: ElemType,
) {
    let sample = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (queries, count) = (softmax.shape(2), softmax.shape(3));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    let is_row = row < queries;
    let row = min(row, queries - 1);
    let place = sample * softmax.stride(0) + head * softmax.stride(1) + row * softmax.stride(2);
    let step = softmax.stride(3);
    let grads = sample * grad_output.stride(0) + head * grad_output.stride(1) + row * grad_output.stride(2);
    let mut low = 0u32;
    let mut high = 0u32;
    if has_dropout {
        let of_sample = sample_low(keys, sample, place_low);
        let other = sample_high(keys, sample, place_high);
        let number = row_number(head as u32, first_row + row as u32);
        low = row_key(of_sample, other, number);
        high = other + number;
    }

    // The component of the gradient along the softmax: moving all scores of a row alike changes nothing.
    let mut along = 0.0f32;
    let mut column = UNIT_POS_X as usize;
    while column < count {
        let grad = grad_at::<E>(grad_output, grads, column, low, high, threshold, scale, has_dropout);
        along += grad * f32::cast_from(softmax[place + column * step]);
        column += ROW_THREADS as usize;
    }
    let along = sum_of_row(&mut shared, along);

    if is_row {
        let to = sample * gradient.stride(0) + head * gradient.stride(1) + row * gradient.stride(2);
        let to_step = gradient.stride(3);
        let mut first = 0usize;
        let mut distances = count;
        let mut distance_to = 0usize;
        let mut distance_step = 0usize;
        if has_distance {
            // Distances that no key of this row has get zeros.
            first = queries - 1 - row;
            distances = by_distance.shape(3);
            distance_step = by_distance.stride(3);
            distance_to = sample * by_distance.stride(0) + head * by_distance.stride(1) + row * by_distance.stride(2);
        }
        let mut index = UNIT_POS_X as usize;
        while index < distances {
            let mut value = 0.0f32;
            if index >= first && index - first < count {
                let column = index - first;
                let grad = grad_at::<E>(grad_output, grads, column, low, high, threshold, scale, has_dropout);
                value = f32::cast_from(softmax[place + column * step]) * (grad - along);
                gradient[to + column * to_step] = E::cast_from(value);
            }
            if has_distance {
                by_distance[distance_to + index * distance_step] = E::cast_from(value);
            }
            index += ROW_THREADS as usize;
        }
    }
}
