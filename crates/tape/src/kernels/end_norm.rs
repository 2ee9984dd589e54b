//! Kernels of the sum of a product and a residual, and of the layer norm of the sum, in one pass over the rows.
//!
//! They read tensors of any layout and allocate nothing but their results. Numbers between are in fp32.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::epilogue::{Beside, with_bias};
use super::random::{DropArgs, random_bits, row_key, sample_high, sample_low};
use super::rows::{GROUP_ROWS, ROW_THREADS, sum_of_column, sum_of_row};
use super::sums::{Ending, Rows, Sums, is_last_group};
use super::{EpilogueRule, NORM_GROUP_ROWS, address_of, end_norm_sums_shape, moments_shape};
use crate::noise::STEPS;

// Shapes: b samples, t rows of a sample, d values of a row.

/// Ends `product` `[b, t, d]` by `rule`, adds it to `residual`, and normalizes the rows of the sum. Returns the sum, the norm in the
/// type `to`, and the moments of the rows `[b, t, 2]`.
pub(super) fn end_norm(
    product: CubeTensor,
    residual: CubeTensor,
    beside: Beside,
    [scale, shift]: [CubeTensor; 2],
    (rule, epsilon, to): (&EpilogueRule, f32, DType),
) -> Vec<CubeTensor> {
    let shape = product.shape();
    let new = |shape: Shape, dtype| empty_device_dtype(product.client.clone(), product.device.clone(), shape, dtype);
    let made = [new(shape.clone(), rule.to), new(shape.clone(), to), new(moments_shape(&shape), DType::F32)];
    if shape.num_elements() > 0 {
        let (has_bias, drops) = (beside.bias.is_some(), beside.keys.is_some());
        let types = [product.dtype, rule.to, scale.dtype, to].map(dtype_to_storage_type);
        let [bias, _, keys] = beside.filled(&product);
        let drop = DropArgs::new(rule.dropout);
        let [sum, normed, moments] = made.each_ref().map(|one| one.clone().into_tensor_arg());
        end_norm_kernel::launch(
            &made[0].client,
            CubeCount::new_2d(shape[1].div_ceil(GROUP_ROWS as usize) as u32, shape[0] as u32),
            CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
            address_of(&[&product, &residual, &made[0]]),
            product.into_tensor_arg(),
            bias.into_tensor_arg(),
            residual.into_tensor_arg(),
            keys.into_tensor_arg(),
            scale.into_tensor_arg(),
            shift.into_tensor_arg(),
            sum,
            normed,
            moments,
            drop.low,
            drop.high,
            drop.first,
            drop.threshold,
            drop.scale,
            rule.factor,
            epsilon,
            has_bias,
            drops,
            shape[2].div_ceil(ROW_THREADS as usize),
            types,
        );
    }
    made.into()
}

/// Computes the gradients of [`end_norm`] from that of the norm and, if there is one, that of the sum: of the residual, of the product,
/// of scale and shift, and of the bias if there is one.
pub(super) fn end_norm_back(
    grad_output: CubeTensor,
    other: Option<CubeTensor>,
    [sum, moments, scale]: [CubeTensor; 3],
    beside: Beside,
    rule: &EpilogueRule,
) -> Vec<CubeTensor> {
    let (shape, has_bias) = (sum.shape(), beside.bias.is_some());
    let new = |dtype| empty_device_dtype(sum.client.clone(), sum.device.clone(), shape.clone(), dtype);
    let (of_residual, of_product) = (new(rule.to), new(rule.from));
    let width = shape[2];
    let rows = vec![Rows::joined(1, width); if has_bias { 3 } else { 2 }];
    let sums = Sums::new(&sum, end_norm_sums_shape(&shape, has_bias), rows, [scale.dtype, rule.from], 1);
    if shape.num_elements() > 0 {
        let drops = beside.keys.is_some();
        let types = [rule.from, rule.to, scale.dtype, grad_output.dtype].map(dtype_to_storage_type);
        let [_, _, keys] = beside.filled(&sum);
        let drop = DropArgs::new(rule.dropout);
        let has_other = other.is_some();
        // Where it is missing, the kernel is compiled without a use of it.
        let other = other.unwrap_or_else(|| sum.clone());
        end_norm_back_kernel::launch(
            &of_residual.client,
            CubeCount::new_2d(shape[1].div_ceil(NORM_GROUP_ROWS) as u32, shape[0] as u32),
            CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
            address_of(&[&grad_output, &sum, &of_residual, &of_product]),
            grad_output.into_tensor_arg(),
            other.into_tensor_arg(),
            sum.into_tensor_arg(),
            moments.into_tensor_arg(),
            scale.into_tensor_arg(),
            keys.into_tensor_arg(),
            of_residual.clone().into_tensor_arg(),
            of_product.clone().into_tensor_arg(),
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
            rule.factor,
            has_other,
            has_bias,
            drops,
            width.div_ceil(ROW_THREADS as usize),
            sums.ending(),
            types,
        );
    }
    [of_residual, of_product].into_iter().chain(sums.finish()).collect()
}

#[cube(launch, address_type = "dynamic")]
fn end_norm_kernel<E: Float, F: Float, S: Float, O: Float>(
    product: &Tensor<E>,
    bias: &Tensor<E>,
    residual: &Tensor<F>,
    keys: &Tensor<i32>,
    scale: &Tensor<S>,
    shift: &Tensor<S>,
    out: &mut Tensor<F>,
    normed: &mut Tensor<O>,
    moments: &mut Tensor<f32>,
    place_low: u32,
    place_high: u32,
    first_row: u32,
    threshold: u32,
    drop_scale: f32,
    factor: f32,
    epsilon: f32,
    #[comptime] has_bias: bool,
    #[comptime] drops: bool,
    // Values of a row that one thread computes.
    #[comptime] slots: usize,
    #[define(E, F, S, O)] _dtypes: [ElemType; 4],
) {
    let sample = CUBE_POS_Y as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let lane = UNIT_POS_X as usize;
    let (rows, width) = (out.shape(1), out.shape(2));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    let mut values = Array::<f32>::new(slots);
    // Threads beyond the last row compute it once more and write nothing: all of a group take part in a sum.
    let is_row = row < rows;
    let row = min(row, rows - 1);
    let of_product = sample * product.stride(0) + row * product.stride(1);
    let of_residual = sample * residual.stride(0) + row * residual.stride(1);
    let mut low = 0u32;
    let mut high = 0u32;
    let number = (first_row + row as u32) * comptime!(STEPS[0]);
    if drops {
        high = sample_high(keys, sample, place_high);
        low = row_key(sample_low(keys, sample, place_low), high, number);
    }
    let mut sum = 0.0f32;
    #[unroll]
    for slot in 0..slots {
        let column = slot * ROW_THREADS as usize + lane;
        let mut value = 0.0f32;
        if column < width {
            value = with_bias::<E>(product, bias, of_product + column * product.stride(2), column, has_bias);
            if drops {
                value *= drop_scale;
                if random_bits(low, high + number, column as u32) < threshold {
                    value = 0.0f32;
                }
            }
            value = value * factor + f32::cast_from(residual[of_residual + column * residual.stride(2)]);
            // The norm is of the sum as it is stored.
            value = f32::cast_from(F::cast_from(value));
        }
        values[slot] = value;
        sum += value;
    }
    let mean = sum_of_row(&mut shared, sum) / width as f32;
    let mut squares = 0.0f32;
    #[unroll]
    for slot in 0..slots {
        if slot * ROW_THREADS as usize + lane < width {
            let difference = values[slot] - mean;
            squares += difference * difference;
        }
    }
    let variance = sum_of_row(&mut shared, squares) / width as f32;
    let inverse = 1.0f32 / (variance + epsilon).sqrt();
    if is_row {
        let to = sample * out.stride(0) + row * out.stride(1);
        let to_step = out.stride(2);
        let norm_to = sample * normed.stride(0) + row * normed.stride(1);
        let norm_step = normed.stride(2);
        #[unroll]
        for slot in 0..slots {
            let column = slot * ROW_THREADS as usize + lane;
            if column < width {
                out[to + column * to_step] = F::cast_from(values[slot]);
                let scaled = (values[slot] - mean) * inverse * f32::cast_from(scale[column * scale.stride(0)]);
                let shifted = scaled + f32::cast_from(shift[column * shift.stride(0)]);
                normed[norm_to + column * norm_step] = O::cast_from(shifted);
            }
        }
        if UNIT_POS_X == 0 {
            let to = sample * moments.stride(0) + row * moments.stride(1);
            let to_step = moments.stride(2);
            moments[to] = mean;
            moments[to + to_step] = inverse;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn end_norm_back_kernel<E: Float, F: Float, S: Float, O: Float>(
    grad_output: &Tensor<O>,
    other: &Tensor<F>,
    sum: &Tensor<F>,
    moments: &Tensor<f32>,
    scale: &Tensor<S>,
    keys: &Tensor<i32>,
    of_residual: &mut Tensor<F>,
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
    #[comptime] has_bias: bool,
    #[comptime] drops: bool,
    #[comptime] slots: usize,
    #[comptime] ending: Ending,
    #[define(E, F, S, O)] _dtypes: [ElemType; 4],
) {
    let sample = CUBE_POS_Y as usize;
    let (rows, width) = (sum.shape(1), sum.shape(2));
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
        let place = sample * sum.stride(0) + row * sum.stride(1);
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
                value = (f32::cast_from(sum[place + column * sum.stride(2)]) - mean) * inverse;
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
            let to = sample * of_residual.stride(0) + row * of_residual.stride(1);
            let to_step = of_residual.stride(2);
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
                    of_residual[to + column * to_step] = F::cast_from(value);
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
