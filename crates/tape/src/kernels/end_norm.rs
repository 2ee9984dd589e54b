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
use super::rows::{GROUP_ROWS, ROW_THREADS, sum_of_row};
use super::{EpilogueRule, address_of, moments_shape};
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
