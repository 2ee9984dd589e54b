//! Kernels of what follows a matrix product: bias, activation, padding, dropout and a sum, in one pass over its result.
//!
//! They read tensors of any layout and allocate nothing but their results. Numbers between are in fp32.

use burn::tensor::Shape;
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::random::{DropArgs, random_bits, row_key, sample_high, sample_low};
use super::sums::{Ending, Rows, Sums, is_last_group, total_of};
use super::{EpilogueRule, NORM_SEGMENT_ROWS, address_of, column_groups, norm_sums_shape};
use crate::activation::Activation;
use crate::noise::STEPS;

// Shapes: b samples, t rows of a sample, d values of a row; GLU halves the rows.

/// Threads of a group along a row.
const COLUMN_THREADS: u32 = 32;
/// Threads of a group along the other axis.
const ROW_THREADS: u32 = 8;

/// Tensors beside the product, each of which may be missing.
#[derive(Clone, Debug)]
pub(super) struct Beside {
    /// Bias `[d]`, of the type of the product.
    pub(super) bias: Option<CubeTensor>,
    /// Number of valid rows of each sample; later rows become zeros.
    pub(super) lengths: Option<CubeTensor>,
    /// Keys of the samples, if values are dropped.
    pub(super) keys: Option<CubeTensor>,
}

/// Computes the result from `product` `[b, t, d]` and `residual`, of the type and shape of the result.
pub(super) fn end(
    product: CubeTensor,
    residual: Option<CubeTensor>,
    beside: Beside,
    rule: &EpilogueRule,
) -> CubeTensor {
    let shape = rule.output_shape(&product.shape());
    let out = empty_device_dtype(product.client.clone(), product.device.clone(), shape.clone(), rule.to);
    if shape.num_elements() == 0 {
        return out;
    }
    let (has_residual, kinds) = (residual.is_some(), Kinds::new(&beside, rule));
    let types = [product.dtype, rule.to].map(dtype_to_storage_type);
    // Where a tensor is missing, another takes its place, and the kernel is compiled without a use of it.
    let residual = residual.unwrap_or_else(|| product.clone());
    let [bias, lengths, keys] = beside.filled(&product);
    let drop = DropArgs::new(rule.dropout);
    let groups = |count: usize, threads: u32| count.div_ceil(threads as usize) as u32;
    end_kernel::launch(
        &out.client,
        CubeCount::new_3d(groups(shape[2], COLUMN_THREADS), groups(shape[1], ROW_THREADS), shape[0] as u32),
        CubeDim::new_2d(COLUMN_THREADS, ROW_THREADS),
        address_of(&[&product, &out]),
        product.into_tensor_arg(),
        bias.into_tensor_arg(),
        residual.into_tensor_arg(),
        lengths.into_tensor_arg(),
        keys.into_tensor_arg(),
        out.clone().into_tensor_arg(),
        drop.low,
        drop.high,
        drop.first,
        drop.threshold,
        drop.scale,
        rule.factor,
        has_residual,
        kinds,
        types,
    );
    out
}

/// Computes the gradient of `product` from that of the result, and the gradient of the bias if there is one. The product is
/// read only for an activation.
pub(super) fn end_back(
    grad_output: CubeTensor,
    product: Option<CubeTensor>,
    beside: Beside,
    rule: &EpilogueRule,
) -> (CubeTensor, Option<CubeTensor>) {
    debug_assert!(product.is_some() || rule.activation.is_none());
    let product = product.unwrap_or_else(|| grad_output.clone());
    let shape = product.shape();
    let new = |shape: Shape, dtype| empty_device_dtype(product.client.clone(), product.device.clone(), shape, dtype);
    let (gradient, segments) = (new(shape.clone(), rule.from), norm_sums_shape(&shape)[0]);
    let width = rule.output_shape(&shape)[2];
    let groups = |count: usize, threads: u32| count.div_ceil(threads as usize);
    let sums = beside.bias.as_ref().map(|_| {
        let (of_segments, rows) = (Shape::new([segments, 1, shape[2]]), vec![Rows::joined(1, shape[2])]);
        Sums::new(&gradient, of_segments, rows, [rule.from; 2], column_groups(width))
    });
    if shape.num_elements() > 0 {
        let kinds = Kinds::new(&beside, rule);
        let types = [rule.from, grad_output.dtype].map(dtype_to_storage_type);
        let [bias, lengths, keys] = beside.filled(&product);
        // Where there are no sums, the kernel is compiled without a use of them.
        let instead = || gradient.clone().into_tensor_arg();
        let drop = DropArgs::new(rule.dropout);
        end_back_kernel::launch(
            &gradient.client,
            CubeCount::new_2d(groups(width, COLUMN_THREADS) as u32, groups(segments, ROW_THREADS) as u32),
            CubeDim::new_2d(COLUMN_THREADS, ROW_THREADS),
            address_of(&[&product, &grad_output, &gradient]),
            grad_output.into_tensor_arg(),
            product.clone().into_tensor_arg(),
            bias.into_tensor_arg(),
            lengths.into_tensor_arg(),
            keys.into_tensor_arg(),
            gradient.clone().into_tensor_arg(),
            sums.as_ref().map_or_else(instead, Sums::segments),
            sums.as_ref().map_or_else(instead, |sums| sums.output(0)),
            sums.as_ref().map_or_else(instead, Sums::counters),
            segments as u32,
            drop.low,
            drop.high,
            drop.first,
            drop.threshold,
            drop.scale,
            rule.factor,
            kinds,
            sums.as_ref().map(Sums::ending),
            types,
        );
    }
    (gradient, sums.map(|sums| sums.finish().remove(0)))
}

impl Beside {
    pub(super) fn filled(self, product: &CubeTensor) -> [CubeTensor; 3] {
        let Self { bias, lengths, keys } = self;
        [bias, lengths, keys].map(|tensor| tensor.unwrap_or_else(|| product.clone()))
    }
}

/// What a kernel is compiled for.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Kinds {
    activation: Option<Activation>,
    has_bias: bool,
    clears: bool,
    drops: bool,
}

impl Kinds {
    fn new(beside: &Beside, rule: &EpilogueRule) -> Self {
        let Beside { bias, lengths, keys } = beside;
        let (has_bias, clears, drops) = (bias.is_some(), lengths.is_some(), keys.is_some());
        Self { activation: rule.activation, has_bias, clears, drops }
    }
}

/// Computes `1 / (1 + exp(-x))`.
#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0f32 / (1.0f32 + (0.0f32 - x).exp())
}

/// Computes the distribution function of the normal distribution.
#[cube]
fn normal(x: f32) -> f32 {
    0.5f32 + 0.5f32 * Erf::erf(x * 0.707_106_77f32)
}

/// Reads a value of the product, with its bias.
#[cube]
pub(super) fn with_bias<E: Float>(
    product: &Tensor<E>,
    bias: &Tensor<E>,
    place: usize,
    column: usize,
    #[comptime] has: bool,
) -> f32 {
    let mut value = f32::cast_from(product[place]);
    if has {
        value += f32::cast_from(bias[column * bias.stride(0)]);
    }
    value
}

#[cube(launch, address_type = "dynamic")]
fn end_kernel<E: Float, F: Float>(
    product: &Tensor<E>,
    bias: &Tensor<E>,
    residual: &Tensor<F>,
    lengths: &Tensor<i32>,
    keys: &Tensor<i32>,
    out: &mut Tensor<F>,
    place_low: u32,
    place_high: u32,
    first_row: u32,
    threshold: u32,
    scale: f32,
    factor: f32,
    #[comptime] has_residual: bool,
    #[comptime] kinds: Kinds,
    #[define(E, F)] _dtypes: [ElemType; 2],
) {
    let column = ABSOLUTE_POS_X as usize;
    let row = ABSOLUTE_POS_Y as usize;
    let sample = CUBE_POS_Z as usize;
    let width = out.shape(2);
    if column >= width || row >= out.shape(1) {
        terminate!();
    }
    let has_bias = comptime!(kinds.has_bias);
    let place = sample * product.stride(0) + row * product.stride(1) + column * product.stride(2);
    let mut value = with_bias::<E>(product, bias, place, column, has_bias);
    if comptime!(kinds.activation == Some(Activation::Silu)) {
        value *= sigmoid(value);
    }
    if comptime!(kinds.activation == Some(Activation::Relu)) {
        // What is not a number stays so.
        if value <= 0.0f32 {
            value = 0.0f32;
        }
    }
    if comptime!(kinds.activation == Some(Activation::Gelu)) {
        value *= normal(value);
    }
    if comptime!(kinds.activation == Some(Activation::Glu)) {
        let gate = with_bias::<E>(product, bias, place + width * product.stride(2), column + width, has_bias);
        value *= sigmoid(gate);
    }
    if comptime!(kinds.clears) {
        if row >= lengths[sample] as usize {
            value = 0.0f32;
        }
    }
    if comptime!(kinds.drops) {
        let low = sample_low(keys, sample, place_low);
        let high = sample_high(keys, sample, place_high);
        let number = (first_row + row as u32) * comptime!(STEPS[0]);
        value *= scale;
        if random_bits(row_key(low, high, number), high + number, column as u32) < threshold {
            value = 0.0f32;
        }
    }
    value *= factor;
    if has_residual {
        let place = sample * residual.stride(0) + row * residual.stride(1) + column * residual.stride(2);
        value += f32::cast_from(residual[place]);
    }
    let to = sample * out.stride(0) + row * out.stride(1) + column * out.stride(2);
    out[to] = F::cast_from(value);
}

#[cube(launch, address_type = "dynamic")]
fn end_back_kernel<E: Float, F: Float>(
    grad_output: &Tensor<F>,
    product: &Tensor<E>,
    bias: &Tensor<E>,
    lengths: &Tensor<i32>,
    keys: &Tensor<i32>,
    gradient: &mut Tensor<E>,
    sums: &mut Tensor<f32>,
    of_bias: &mut Tensor<E>,
    counters: &mut Tensor<Atomic<u32>>,
    segments: u32,
    place_low: u32,
    place_high: u32,
    first_row: u32,
    threshold: u32,
    scale: f32,
    factor: f32,
    #[comptime] kinds: Kinds,
    #[comptime] ending: Option<Ending>,
    #[define(E, F)] _dtypes: [ElemType; 2],
) {
    let column = ABSOLUTE_POS_X as usize;
    let segment = ABSOLUTE_POS_Y as usize;
    let (rows, width) = (grad_output.shape(1), grad_output.shape(2));
    let has_bias = comptime!(kinds.has_bias);
    let is_glu = comptime!(kinds.activation == Some(Activation::Glu));
    if column < width && segment < segments as usize {
        let of_sample = rows.div_ceil(NORM_SEGMENT_ROWS);
        let sample = segment / of_sample;
        let first = (segment % of_sample) * NORM_SEGMENT_ROWS;
        let last = min(first + NORM_SEGMENT_ROWS, rows);
        let mut low = 0u32;
        let mut high = 0u32;
        if comptime!(kinds.drops) {
            low = sample_low(keys, sample, place_low);
            high = sample_high(keys, sample, place_high);
        }
        let mut visible = rows;
        if comptime!(kinds.clears) {
            visible = lengths[sample] as usize;
        }
        let mut sum = 0.0f32;
        let mut gate_sum = 0.0f32;
        let step = product.stride(2);
        let to_step = gradient.stride(2);
        for row in first..last {
            let from = sample * grad_output.stride(0) + row * grad_output.stride(1) + column * grad_output.stride(2);
            let mut grad = f32::cast_from(grad_output[from]) * factor;
            if comptime!(kinds.drops) {
                let number = (first_row + row as u32) * comptime!(STEPS[0]);
                grad *= scale;
                if random_bits(row_key(low, high, number), high + number, column as u32) < threshold {
                    grad = 0.0f32;
                }
            }
            if row >= visible {
                grad = 0.0f32;
            }
            let place = sample * product.stride(0) + row * product.stride(1) + column * step;
            let to = sample * gradient.stride(0) + row * gradient.stride(1) + column * to_step;
            if comptime!(kinds.activation == Some(Activation::Silu)) {
                let value = with_bias::<E>(product, bias, place, column, has_bias);
                let s = sigmoid(value);
                grad *= s * (1.0f32 + value * (1.0f32 - s));
            }
            if comptime!(kinds.activation == Some(Activation::Relu)) {
                if with_bias::<E>(product, bias, place, column, has_bias) <= 0.0f32 {
                    grad = 0.0f32;
                }
            }
            if comptime!(kinds.activation == Some(Activation::Gelu)) {
                let value = with_bias::<E>(product, bias, place, column, has_bias);
                let bell = (value * value * -0.5f32).exp() * 0.398_942_3f32;
                grad *= normal(value) + value * bell;
            }
            if is_glu {
                let value = with_bias::<E>(product, bias, place, column, has_bias);
                let gate = with_bias::<E>(product, bias, place + width * step, column + width, has_bias);
                let s = sigmoid(gate);
                let of_gate = grad * value * s * (1.0f32 - s);
                gradient[to + width * to_step] = E::cast_from(of_gate);
                gate_sum += of_gate;
                grad *= s;
            }
            gradient[to] = E::cast_from(grad);
            sum += grad;
        }
        if has_bias {
            let to = segment * sums.stride(0) + column * sums.stride(2);
            let step = sums.stride(2);
            sums[to] = sum;
            if is_glu {
                sums[to + width * step] = gate_sum;
            }
        }
    }
    if comptime!(Ending::is_joined(ending.as_ref())) {
        if is_last_group(counters, CUBE_POS_X as usize, CUBE_COUNT_Y) {
            let mut shared = Shared::<[f32]>::new_slice((COLUMN_THREADS * ROW_THREADS) as usize);
            let total = total_of(sums, &mut shared, 0, min(column, width - 1));
            if UNIT_POS_Y == 0 && column < width {
                of_bias[column] = E::cast_from(total);
            }
            if is_glu {
                let total = total_of(sums, &mut shared, 0, min(column, width - 1) + width);
                if UNIT_POS_Y == 0 && column < width {
                    of_bias[column + width] = E::cast_from(total);
                }
            }
        }
    }
}
