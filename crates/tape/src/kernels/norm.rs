//! Kernels of layer norm over the rows of a tensor.
//!
//! They read tensors of any layout and allocate nothing but their results. Sums are in fp32.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::rows::{GROUP_ROWS, ROW_THREADS, sum_of_row};
use super::sums::{Ending, Rows, Sums, is_last_group, total_of};
use super::{NORM_SEGMENT_ROWS, address_of, column_groups, moments_shape, norm_sums_shape};

// Shapes: b batch, t rows of a sample, d values of a row.

/// Normalizes the rows of `x` `[b, t, d]`, multiplies them by `scale` `[d]` and adds `shift` `[d]`. Returns the result and
/// the moments of the rows `[b, t, 2]` in fp32: the mean, and one over the standard deviation. The result has the type `to`.
pub(super) fn norm_rows(
    x: CubeTensor,
    scale: CubeTensor,
    shift: CubeTensor,
    epsilon: f32,
    to: DType,
) -> (CubeTensor, CubeTensor) {
    let shape = x.shape();
    let out = empty_device_dtype(x.client.clone(), x.device.clone(), shape.clone(), to);
    let moments = empty_device_dtype(x.client.clone(), x.device.clone(), moments_shape(&shape), DType::F32);
    if shape.num_elements() == 0 {
        return (out, moments);
    }
    let types = [x.dtype, scale.dtype, to].map(dtype_to_storage_type);
    let address = address_of(&[&x, &out]);
    norm_rows_kernel::launch(
        &out.client,
        groups_of_rows(&shape),
        CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
        address,
        x.into_tensor_arg(),
        scale.into_tensor_arg(),
        shift.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        moments.clone().into_tensor_arg(),
        epsilon,
        types,
    );
    (out, moments)
}

/// Computes the gradient of the input of [`norm_rows`] from `grad_output` `[b, t, d]`, the input and its moments, and adds `other`,
/// of the type of the input.
pub(super) fn norm_rows_back(
    grad_output: CubeTensor,
    x: CubeTensor,
    moments: CubeTensor,
    scale: CubeTensor,
    other: Option<CubeTensor>,
) -> CubeTensor {
    let shape = x.shape();
    let out = empty_device_dtype(x.client.clone(), x.device.clone(), shape.clone(), x.dtype);
    if shape.num_elements() == 0 {
        return out;
    }
    let types = [x.dtype, scale.dtype, grad_output.dtype].map(dtype_to_storage_type);
    let address = address_of(&[&grad_output, &x, &out]);
    let has_other = other.is_some();
    // Where it is missing, the kernel is compiled without a use of it.
    let other = other.unwrap_or_else(|| x.clone());
    norm_rows_back_kernel::launch(
        &out.client,
        groups_of_rows(&shape),
        CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
        address,
        grad_output.into_tensor_arg(),
        x.into_tensor_arg(),
        moments.into_tensor_arg(),
        scale.into_tensor_arg(),
        other.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        has_other,
        types,
    );
    out
}

/// Computes the gradients of scale and shift of [`norm_rows`], of the type `to`.
pub(super) fn norm_rows_sums(
    grad_output: CubeTensor,
    x: CubeTensor,
    moments: CubeTensor,
    to: DType,
) -> Vec<CubeTensor> {
    let shape = norm_sums_shape(&x.shape());
    let (segments, d) = (shape[0], shape[2]);
    let groups = |count: usize, threads: u32| count.div_ceil(threads as usize);
    let sums = Sums::new(&x, shape, vec![Rows::joined(1, d); 2], [to; 2], column_groups(d));
    if segments * d > 0 {
        let types = [x.dtype, grad_output.dtype, to].map(dtype_to_storage_type);
        let address = address_of(&[&grad_output, &x]);
        norm_rows_sums_kernel::launch(
            &x.client.clone(),
            CubeCount::new_2d(groups(d, ROW_THREADS) as u32, groups(segments, GROUP_ROWS) as u32),
            CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
            address,
            grad_output.into_tensor_arg(),
            x.into_tensor_arg(),
            moments.into_tensor_arg(),
            sums.segments(),
            sums.output(0),
            sums.output(1),
            sums.counters(),
            sums.ending(),
            types,
        );
    }
    sums.finish()
}

/// Returns how many groups of threads cover the rows of a tensor of `shape`.
fn groups_of_rows(shape: &Shape) -> CubeCount {
    CubeCount::new_2d(shape[1].div_ceil(GROUP_ROWS as usize) as u32, shape[0] as u32)
}

#[cube(launch, address_type = "dynamic")]
fn norm_rows_kernel<E: Float, S: Float, O: Float>(
    x: &Tensor<E>,
    scale: &Tensor<S>,
    shift: &Tensor<S>,
    out: &mut Tensor<O>,
    moments: &mut Tensor<f32>,
    epsilon: f32,
    #[define(E, S, O)] _dtypes: [ElemType; 3],
) {
    let sample = CUBE_POS_Y as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (rows, width) = (x.shape(1), x.shape(2));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    // Threads beyond the last row compute it once more and write nothing: all of a group take part in a sum.
    let is_row = row < rows;
    let row = min(row, rows - 1);
    let place = sample * x.stride(0) + row * x.stride(1);
    let step = x.stride(2);

    let mut sum = 0.0f32;
    let mut column = UNIT_POS_X as usize;
    while column < width {
        sum += f32::cast_from(x[place + column * step]);
        column += ROW_THREADS as usize;
    }
    let mean = sum_of_row(&mut shared, sum) / width as f32;

    let mut squares = 0.0f32;
    let mut column = UNIT_POS_X as usize;
    while column < width {
        let difference = f32::cast_from(x[place + column * step]) - mean;
        squares += difference * difference;
        column += ROW_THREADS as usize;
    }
    let variance = sum_of_row(&mut shared, squares) / width as f32;
    let inverse = 1.0f32 / (variance + epsilon).sqrt();

    if is_row {
        let to = sample * out.stride(0) + row * out.stride(1);
        let to_step = out.stride(2);
        let mut column = UNIT_POS_X as usize;
        while column < width {
            let normed = (f32::cast_from(x[place + column * step]) - mean) * inverse;
            let scaled = normed * f32::cast_from(scale[column * scale.stride(0)]);
            out[to + column * to_step] = O::cast_from(scaled + f32::cast_from(shift[column * shift.stride(0)]));
            column += ROW_THREADS as usize;
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
fn norm_rows_back_kernel<E: Float, S: Float, O: Float>(
    grad_output: &Tensor<O>,
    x: &Tensor<E>,
    moments: &Tensor<f32>,
    scale: &Tensor<S>,
    other: &Tensor<E>,
    out: &mut Tensor<E>,
    #[comptime] has_other: bool,
    #[define(E, S, O)] _dtypes: [ElemType; 3],
) {
    let sample = CUBE_POS_Y as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (rows, width) = (x.shape(1), x.shape(2));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    let is_row = row < rows;
    let row = min(row, rows - 1);
    let place = sample * x.stride(0) + row * x.stride(1);
    let step = x.stride(2);
    let grads = sample * grad_output.stride(0) + row * grad_output.stride(1);
    let grads_step = grad_output.stride(2);
    let of_row = sample * moments.stride(0) + row * moments.stride(1);
    let (mean, inverse) = (moments[of_row], moments[of_row + moments.stride(2)]);

    // The mean of the gradient and its component along the normalized row do not change the output.
    let mut flat = 0.0f32;
    let mut along = 0.0f32;
    let mut column = UNIT_POS_X as usize;
    while column < width {
        let normed = (f32::cast_from(x[place + column * step]) - mean) * inverse;
        let weight = f32::cast_from(scale[column * scale.stride(0)]);
        let gradient = f32::cast_from(grad_output[grads + column * grads_step]) * weight;
        flat += gradient;
        along += gradient * normed;
        column += ROW_THREADS as usize;
    }
    let flat = sum_of_row(&mut shared, flat) / width as f32;
    let along = sum_of_row(&mut shared, along) / width as f32;

    if is_row {
        let to = sample * out.stride(0) + row * out.stride(1);
        let to_step = out.stride(2);
        let mut column = UNIT_POS_X as usize;
        while column < width {
            let normed = (f32::cast_from(x[place + column * step]) - mean) * inverse;
            let weight = f32::cast_from(scale[column * scale.stride(0)]);
            let gradient = f32::cast_from(grad_output[grads + column * grads_step]) * weight;
            let mut value = (gradient - flat - normed * along) * inverse;
            if has_other {
                let from = sample * other.stride(0) + row * other.stride(1) + column * other.stride(2);
                value += f32::cast_from(other[from]);
            }
            out[to + column * to_step] = E::cast_from(value);
            column += ROW_THREADS as usize;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn norm_rows_sums_kernel<E: Float, O: Float, S: Float>(
    grad_output: &Tensor<O>,
    x: &Tensor<E>,
    moments: &Tensor<f32>,
    out: &mut Tensor<f32>,
    of_scale: &mut Tensor<S>,
    of_shift: &mut Tensor<S>,
    counters: &mut Tensor<Atomic<u32>>,
    #[comptime] ending: Ending,
    #[define(E, O, S)] _dtypes: [ElemType; 3],
) {
    let column = ABSOLUTE_POS_X as usize;
    let segment = ABSOLUTE_POS_Y as usize;
    let (rows, width) = (x.shape(1), x.shape(2));
    if column < width && segment < out.shape(0) {
        let of_sample = rows.div_ceil(NORM_SEGMENT_ROWS);
        let sample = segment / of_sample;
        let first = (segment % of_sample) * NORM_SEGMENT_ROWS;
        let last = min(first + NORM_SEGMENT_ROWS, rows);
        let mut for_scale = 0.0f32;
        let mut for_shift = 0.0f32;
        for row in first..last {
            let of_row = sample * moments.stride(0) + row * moments.stride(1);
            let value = f32::cast_from(x[sample * x.stride(0) + row * x.stride(1) + column * x.stride(2)]);
            let place = sample * grad_output.stride(0) + row * grad_output.stride(1) + column * grad_output.stride(2);
            let gradient = f32::cast_from(grad_output[place]);
            for_scale += gradient * (value - moments[of_row]) * moments[of_row + moments.stride(2)];
            for_shift += gradient;
        }
        let place = segment * out.stride(0) + column * out.stride(2);
        let row = out.stride(1);
        out[place] = for_scale;
        out[place + row] = for_shift;
    }
    if comptime!(ending.is_joined) {
        if is_last_group(counters, CUBE_POS_X as usize, CUBE_COUNT_Y) {
            let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
            let scale_sum = total_of(out, &mut shared, 0, min(column, width - 1));
            let shift_sum = total_of(out, &mut shared, 1, min(column, width - 1));
            if UNIT_POS_Y == 0 && column < width {
                of_scale[column] = S::cast_from(scale_sum);
                of_shift[column] = S::cast_from(shift_sum);
            }
        }
    }
}
