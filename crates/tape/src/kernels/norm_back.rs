//! The kernel of all gradients of layer norm, and of the product that was added to the rows before.
//!
//! It reads tensors of any layout and allocates nothing but its results. Sums are in fp32.

use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::epilogue::Beside;
use super::norm::{norm_rows_back, norm_rows_sums};
use super::random::{DropArgs, random_bits, row_key, sample_high, sample_low};
use super::rows::{GROUP_ROWS, ROW_THREADS, sum_of_column, sum_of_row};
use super::sums::{Ending, Rows, Sums, is_last_group};
use super::{EpilogueRule, MOST_JOINED_WIDTH, NORM_GROUP_ROWS, address_of, norm_back_sums_shape};
use crate::noise::STEPS;

// Shapes: b samples, t rows of a sample, d values of a row.

/// Computes the gradients of layer norm over the rows of `x` `[b, t, d]` from that of the norm, `grad_output`, and `other`, that of `x`
/// beside it: of `x`, of the product that was `added` to it if there was one, of scale and shift, and of the bias of the product if there
/// is one. Rows to which a product was added are at most [`MOST_JOINED_WIDTH`] wide.
pub(super) fn norm_back(
    grad_output: CubeTensor,
    other: Option<CubeTensor>,
    [x, moments, scale]: [CubeTensor; 3],
    added: Option<(Beside, &EpilogueRule)>,
) -> Vec<CubeTensor> {
    let (shape, of_norm) = (x.shape(), scale.dtype);
    let width = shape[2];
    if width > MOST_JOINED_WIDTH {
        debug_assert!(added.is_none());
        let of_x = norm_rows_back(grad_output.clone(), x.clone(), moments.clone(), scale, other);
        return std::iter::once(of_x).chain(norm_rows_sums(grad_output, x, moments, of_norm)).collect();
    }
    let new = |dtype| empty_device_dtype(x.client.clone(), x.device.clone(), shape.clone(), dtype);
    let of_x = new(x.dtype);
    let of_product = added.as_ref().map(|(_, rule)| new(rule.from));
    let has_bias = added.as_ref().is_some_and(|(beside, _)| beside.bias.is_some());
    let of_bias = of_product.as_ref().map_or(of_norm, |of_product| of_product.dtype);
    let rows = vec![Rows::joined(1, width); if has_bias { 3 } else { 2 }];
    let sums = Sums::new(&x, norm_back_sums_shape(&shape, has_bias), rows, [of_norm, of_bias], 1);
    if shape.num_elements() > 0 {
        // Where a tensor is missing, another takes its place, and the kernel is compiled without a use of it.
        let (has_other, has_product) = (other.is_some(), of_product.is_some());
        let other = other.unwrap_or_else(|| x.clone());
        let written = of_product.clone().unwrap_or_else(|| of_x.clone());
        let rule = added.as_ref().map(|(_, rule)| *rule);
        let keys = added.and_then(|(beside, _)| beside.keys);
        let (drops, keys) = (keys.is_some(), keys.unwrap_or_else(|| x.clone()));
        let drop = DropArgs::new(rule.and_then(|rule| rule.dropout));
        let types = [written.dtype, x.dtype, of_norm, grad_output.dtype].map(dtype_to_storage_type);
        norm_back_kernel::launch(
            &of_x.client,
            CubeCount::new_2d(shape[1].div_ceil(NORM_GROUP_ROWS) as u32, shape[0] as u32),
            CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
            address_of(&[&grad_output, &x, &of_x, &written]),
            grad_output.into_tensor_arg(),
            other.into_tensor_arg(),
            x.into_tensor_arg(),
            moments.into_tensor_arg(),
            scale.into_tensor_arg(),
            keys.into_tensor_arg(),
            of_x.clone().into_tensor_arg(),
            written.into_tensor_arg(),
            sums.segments(),
            sums.output(0),
            sums.output(1),
            sums.output(2),
            sums.counters(),
            drop.low,
            drop.high,
            drop.first,
            drop.threshold,
            drop.scale,
            rule.map_or(1.0, |rule| rule.factor),
            has_other,
            has_product,
            has_bias,
            drops,
            width.div_ceil(ROW_THREADS as usize),
            sums.ending(),
            types,
        );
    }
    std::iter::once(of_x).chain(of_product).chain(sums.finish()).collect()
}

#[cube(launch, address_type = "dynamic")]
fn norm_back_kernel<E: Float, F: Float, S: Float, O: Float>(
    grad_output: &Tensor<O>,
    other: &Tensor<F>,
    x: &Tensor<F>,
    moments: &Tensor<f32>,
    scale: &Tensor<S>,
    keys: &Tensor<i32>,
    of_x: &mut Tensor<F>,
    of_product: &mut Tensor<E>,
    sums: &mut Tensor<f32>,
    of_scale: &mut Tensor<S>,
    of_shift: &mut Tensor<S>,
    of_bias: &mut Tensor<E>,
    counters: &mut Tensor<Atomic<u32>>,
    place_low: u32,
    place_high: u32,
    first_row: u32,
    threshold: u32,
    drop_scale: f32,
    factor: f32,
    #[comptime] has_other: bool,
    #[comptime] has_product: bool,
    #[comptime] has_bias: bool,
    #[comptime] drops: bool,
    // Values of a row that one thread computes.
    #[comptime] slots: usize,
    #[comptime] ending: Ending,
    #[define(E, F, S, O)] _dtypes: [ElemType; 4],
) {
    let sample = CUBE_POS_Y as usize;
    let (rows, width) = (x.shape(1), x.shape(2));
    let lane = UNIT_POS_X as usize;
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    let mut normed = Array::<f32>::new(slots);
    let mut weighted = Array::<f32>::new(slots);
    let mut for_scale = Array::<f32>::new(slots);
    let mut for_shift = Array::<f32>::new(slots);
    let mut for_bias = Array::<f32>::new(slots);
    #[unroll]
    for slot in 0..slots {
        for_scale[slot] = 0.0f32;
        for_shift[slot] = 0.0f32;
        for_bias[slot] = 0.0f32;
    }
    let mut low = 0u32;
    let mut high = 0u32;
    if drops {
        low = sample_low(keys, sample, place_low);
        high = sample_high(keys, sample, place_high);
    }
    for part in 0..comptime!(NORM_GROUP_ROWS / GROUP_ROWS as usize) {
        let row = CUBE_POS_X as usize * NORM_GROUP_ROWS + part * GROUP_ROWS as usize + UNIT_POS_Y as usize;
        // Threads beyond the last row compute it once more and write nothing: all of a group take part in a sum.
        let is_row = row < rows;
        let row = min(row, rows - 1);
        let place = sample * x.stride(0) + row * x.stride(1);
        let grads = sample * grad_output.stride(0) + row * grad_output.stride(1);
        let of_row = sample * moments.stride(0) + row * moments.stride(1);
        let (mean, inverse) = (moments[of_row], moments[of_row + moments.stride(2)]);
        // The mean of the gradient and its component along the normalized row do not change the output.
        let mut flat = 0.0f32;
        let mut along = 0.0f32;
        #[unroll]
        for slot in 0..slots {
            let column = slot * ROW_THREADS as usize + lane;
            let mut value = 0.0f32;
            let mut gradient = 0.0f32;
            let mut weight = 0.0f32;
            if column < width {
                value = (f32::cast_from(x[place + column * x.stride(2)]) - mean) * inverse;
                gradient = f32::cast_from(grad_output[grads + column * grad_output.stride(2)]);
                weight = f32::cast_from(scale[column * scale.stride(0)]);
            }
            if is_row {
                for_scale[slot] += gradient * value;
                for_shift[slot] += gradient;
            }
            normed[slot] = value;
            weighted[slot] = gradient * weight;
            flat += weighted[slot];
            along += weighted[slot] * value;
        }
        let flat = sum_of_row(&mut shared, flat) / width as f32;
        let along = sum_of_row(&mut shared, along) / width as f32;
        if is_row {
            let number = (first_row + row as u32) * comptime!(STEPS[0]);
            let mut key = 0u32;
            if drops {
                key = row_key(low, high, number);
            }
            let to = sample * of_x.stride(0) + row * of_x.stride(1);
            let to_step = of_x.stride(2);
            let to_product = sample * of_product.stride(0) + row * of_product.stride(1);
            let product_step = of_product.stride(2);
            #[unroll]
            for slot in 0..slots {
                let column = slot * ROW_THREADS as usize + lane;
                if column < width {
                    let mut value = (weighted[slot] - flat - normed[slot] * along) * inverse;
                    if has_other {
                        let from = sample * other.stride(0) + row * other.stride(1) + column * other.stride(2);
                        value += f32::cast_from(other[from]);
                    }
                    of_x[to + column * to_step] = F::cast_from(value);
                    if has_product {
                        value *= factor;
                        if drops {
                            value *= drop_scale;
                            if random_bits(key, high + number, column as u32) < threshold {
                                value = 0.0f32;
                            }
                        }
                        of_product[to_product + column * product_step] = E::cast_from(value);
                        for_bias[slot] += value;
                    }
                }
            }
        }
    }
    let segment = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize;
    #[unroll]
    for slot in 0..slots {
        let column = slot * ROW_THREADS as usize + lane;
        let to = segment * sums.stride(0) + column * sums.stride(2);
        let step = sums.stride(1);
        let scale_sum = sum_of_column(&mut shared, for_scale[slot]);
        let shift_sum = sum_of_column(&mut shared, for_shift[slot]);
        if UNIT_POS_Y == 0 && column < width {
            sums[to] = scale_sum;
            sums[to + step] = shift_sum;
        }
        if has_bias {
            let bias_sum = sum_of_column(&mut shared, for_bias[slot]);
            if UNIT_POS_Y == 0 && column < width {
                sums[to + 2 * step] = bias_sum;
            }
        }
    }
    if comptime!(ending.is_joined) {
        if is_last_group(counters, 0, CUBE_COUNT_X * CUBE_COUNT_Y) {
            #[unroll]
            for slot in 0..slots {
                for_scale[slot] = 0.0f32;
                for_shift[slot] = 0.0f32;
                for_bias[slot] = 0.0f32;
            }
            let mut segment = UNIT_POS_Y as usize;
            while segment < sums.shape(0) {
                #[unroll]
                for slot in 0..slots {
                    let column = min(slot * ROW_THREADS as usize + lane, width - 1);
                    let from = segment * sums.stride(0) + column * sums.stride(2);
                    for_scale[slot] += sums[from];
                    for_shift[slot] += sums[from + sums.stride(1)];
                    if has_bias {
                        for_bias[slot] += sums[from + 2 * sums.stride(1)];
                    }
                }
                segment += GROUP_ROWS as usize;
            }
            #[unroll]
            for slot in 0..slots {
                let column = slot * ROW_THREADS as usize + lane;
                let is_written = UNIT_POS_Y == 0 && column < width;
                let scale_sum = sum_of_column(&mut shared, for_scale[slot]);
                let shift_sum = sum_of_column(&mut shared, for_shift[slot]);
                if is_written {
                    of_scale[column] = S::cast_from(scale_sum);
                    of_shift[column] = S::cast_from(shift_sum);
                }
                if has_bias {
                    let bias_sum = sum_of_column(&mut shared, for_bias[slot]);
                    if is_written {
                        of_bias[column] = E::cast_from(bias_sum);
                    }
                }
            }
        }
    }
}
