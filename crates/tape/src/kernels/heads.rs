//! Kernels that cut a projection into the heads of attention, and that join heads again.
//!
//! They read tensors of any layout and allocate nothing but their results.

use burn::tensor::Shape;
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::sums::{Ending, Rows, Sums, is_last_group, total_of, write_sum};
use super::{HeadsRule, NORM_SEGMENT_ROWS, address_of, column_groups, norm_sums_shape};

// Shapes: b samples, t rows of a sample, h heads, w width of a head, p parts of a projection.

/// Threads of a group along a row.
const COLUMN_THREADS: u32 = 32;
/// Threads of a group along the other axis.
const ROW_THREADS: u32 = 8;
/// Most results of a projection.
pub(super) const MOST_OUTPUTS: usize = 4;

/// What a kernel is compiled for: for each result the part of the projection that it takes, and whether a bias is added.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
struct Kinds {
    parts: usize,
    has_bias: bool,
    outputs: Vec<(usize, bool)>,
    /// Results with a gradient.
    present: Vec<bool>,
}

/// Cuts `x` `[b, t, p * h * w]`, to which `bias` is added, into results `[b, h, t, w]` by `rule`. `biases` `[h, w]` are those of
/// the first two results that have one.
pub(super) fn split(
    x: CubeTensor,
    bias: Option<CubeTensor>,
    biases: Vec<CubeTensor>,
    rule: &HeadsRule,
) -> Vec<CubeTensor> {
    let shape = rule.output_shape(&x.shape());
    let new = || empty_device_dtype(x.client.clone(), x.device.clone(), shape.clone(), x.dtype);
    let outputs: Vec<CubeTensor> = rule.outputs.iter().map(|_| new()).collect();
    if shape.num_elements() == 0 {
        return outputs;
    }
    // Where a tensor is missing, another takes its place, and the kernel is compiled without a use of it.
    let out = |index: usize| outputs.get(index).unwrap_or(&outputs[0]).clone().into_tensor_arg();
    let mut biases = biases.into_iter();
    let own = bias.unwrap_or_else(|| x.clone());
    let mut bias = |index: usize| {
        let has = rule.outputs.get(index).is_some_and(|output| output.has_bias);
        has.then(|| biases.next().expect("one for each result with a bias")).unwrap_or_else(|| x.clone())
    };
    let (first_bias, second_bias) = (bias(0), bias(1));
    let factor = |index: usize| rule.outputs.get(index).map_or(1.0, |output| output.factor);
    let groups = |count: usize, threads: u32| count.div_ceil(threads as usize) as u32;
    let width = shape[1] * shape[3];
    split_kernel::launch(
        &outputs[0].client,
        CubeCount::new_3d(groups(width, COLUMN_THREADS), groups(shape[2], ROW_THREADS), shape[0] as u32),
        CubeDim::new_2d(COLUMN_THREADS, ROW_THREADS),
        address_of(&[&x, &outputs[0]]),
        x.clone().into_tensor_arg(),
        own.into_tensor_arg(),
        first_bias.into_tensor_arg(),
        second_bias.into_tensor_arg(),
        out(0),
        out(1),
        out(2),
        out(3),
        factor(0),
        factor(1),
        factor(2),
        factor(3),
        Kinds::new(rule, vec![true; rule.outputs.len()]),
        dtype_to_storage_type(x.dtype),
    );
    outputs
}

/// Joins gradients `[b, h, t, w]` of the results of [`split`] to the gradient of its input. A result without a gradient has
/// zeros. Returns also the gradients of the bias of the projection and of the other biases.
pub(super) fn split_back(grads: Vec<Option<CubeTensor>>, rule: &HeadsRule) -> (CubeTensor, Vec<CubeTensor>) {
    let present: Vec<bool> = grads.iter().map(Option::is_some).collect();
    let first = grads.iter().flatten().next().expect("a result has a gradient").clone();
    let shape = first.shape();
    let [b, h, t, w] = [shape[0], shape[1], shape[2], shape[3]];
    let width = h * w;
    let new = |shape: Shape, dtype| empty_device_dtype(first.client.clone(), first.device.clone(), shape, dtype);
    let gradient = new(Shape::new([b, t, rule.parts * width]), first.dtype);
    let biases = rule.sums();
    let segments = norm_sums_shape(&Shape::new([b, t, width]))[0];
    let groups = |count: usize, threads: u32| count.div_ceil(threads as usize);
    let sums = (biases > 0).then(|| {
        let own = rule.has_bias.then(|| Rows::joined(rule.parts, width));
        let others = rule.outputs.iter().filter(|output| output.has_bias).map(|_| Rows::joined(1, width));
        let (of_segments, rows) = (Shape::new([segments, biases, width]), own.into_iter().chain(others).collect());
        Sums::new(&gradient, of_segments, rows, [first.dtype; 2], column_groups(width))
    });
    if shape.num_elements() > 0 {
        // Where there are no sums, the kernel is compiled without a use of them.
        let instead = || gradient.clone().into_tensor_arg();
        let out = |index| sums.as_ref().map_or_else(instead, |sums: &Sums| sums.output(index));
        let grad = |index: usize| {
            let grad = grads.get(index).and_then(Option::as_ref);
            grad.unwrap_or(&first).clone().into_tensor_arg()
        };
        let factor = |index: usize| rule.outputs.get(index).map_or(1.0, |output| output.factor);
        split_back_kernel::launch(
            &gradient.client,
            CubeCount::new_2d(groups(width, COLUMN_THREADS) as u32, groups(segments, ROW_THREADS) as u32),
            CubeDim::new_2d(COLUMN_THREADS, ROW_THREADS),
            address_of(&[&first, &gradient]),
            grad(0),
            grad(1),
            grad(2),
            grad(3),
            gradient.clone().into_tensor_arg(),
            sums.as_ref().map_or_else(instead, Sums::segments),
            out(0),
            out(1),
            out(2),
            sums.as_ref().map_or_else(instead, Sums::counters),
            segments as u32,
            factor(0),
            factor(1),
            factor(2),
            factor(3),
            Kinds::new(rule, present),
            sums.as_ref().map(Sums::ending),
            dtype_to_storage_type(first.dtype),
        );
    }
    let Some(sums) = sums else { return (gradient, Vec::new()) };
    let found = sums.finish().into_iter().zip(rule.bias_shapes(&shape));
    let shaped = |(bias, shape): (CubeTensor, Shape)| {
        CubeTensor::new_contiguous(bias.client.clone(), bias.device.clone(), shape, bias.handle, bias.dtype)
    };
    (gradient, found.map(shaped).collect())
}

impl Kinds {
    fn new(rule: &HeadsRule, present: Vec<bool>) -> Self {
        assert!(rule.outputs.len() <= MOST_OUTPUTS, "a projection has at most {MOST_OUTPUTS} results");
        Self {
            parts: rule.parts,
            has_bias: rule.has_bias,
            outputs: rule.outputs.iter().map(|output| (output.part, output.has_bias)).collect(),
            present,
        }
    }
}

/// Writes one result of a projection.
#[cube]
fn write_head<E: Float>(
    x: &Tensor<E>,
    own: &Tensor<E>,
    bias: &Tensor<E>,
    out: &mut Tensor<E>,
    place: usize,
    column: usize,
    factor: f32,
    #[comptime] part: usize,
    #[comptime] has_own: bool,
    #[comptime] has_bias: bool,
) {
    let (heads, width) = (out.shape(1), out.shape(3));
    let (head, of_head) = (column / width, column % width);
    let of_part = part * heads * width + column;
    let mut value = f32::cast_from(x[place + of_part * x.stride(2)]);
    if has_own {
        value += f32::cast_from(own[of_part * own.stride(0)]);
    }
    if has_bias {
        value += f32::cast_from(bias[head * bias.stride(0) + of_head * bias.stride(1)]);
    }
    let to = CUBE_POS_Z as usize * out.stride(0)
        + head * out.stride(1)
        + ABSOLUTE_POS_Y as usize * out.stride(2)
        + of_head * out.stride(3);
    out[to] = E::cast_from(value * factor);
}

#[cube(launch, address_type = "dynamic")]
fn split_kernel<E: Float>(
    x: &Tensor<E>,
    own: &Tensor<E>,
    first_bias: &Tensor<E>,
    second_bias: &Tensor<E>,
    out_0: &mut Tensor<E>,
    out_1: &mut Tensor<E>,
    out_2: &mut Tensor<E>,
    out_3: &mut Tensor<E>,
    factor_0: f32,
    factor_1: f32,
    factor_2: f32,
    factor_3: f32,
    #[comptime] kinds: Kinds,
    #[define(E)] _dtype: ElemType,
) {
    let column = ABSOLUTE_POS_X as usize;
    let row = ABSOLUTE_POS_Y as usize;
    if column >= out_0.shape(1) * out_0.shape(3) || row >= out_0.shape(2) {
        terminate!();
    }
    let place = CUBE_POS_Z as usize * x.stride(0) + row * x.stride(1);
    let count = comptime!(kinds.outputs.len());
    let has_own = comptime!(kinds.has_bias);
    let (part, has_bias) = comptime!(kinds.outputs[0]);
    write_head::<E>(x, own, first_bias, out_0, place, column, factor_0, part, has_own, has_bias);
    if comptime!(count > 1) {
        let (part, has_bias) = comptime!(kinds.outputs[1 % count]);
        write_head::<E>(x, own, second_bias, out_1, place, column, factor_1, part, has_own, has_bias);
    }
    if comptime!(count > 2) {
        let part = comptime!(kinds.outputs[2 % count].0);
        write_head::<E>(x, own, first_bias, out_2, place, column, factor_2, part, has_own, false);
    }
    if comptime!(count > 3) {
        let part = comptime!(kinds.outputs[3 % count].0);
        write_head::<E>(x, own, first_bias, out_3, place, column, factor_3, part, has_own, false);
    }
}

/// Reads the gradient of one result, times its factor.
#[cube]
fn read_head<E: Float>(grad: &Tensor<E>, sample: usize, row: usize, column: usize, factor: f32) -> f32 {
    let width = grad.shape(3);
    let place = sample * grad.stride(0)
        + column / width * grad.stride(1)
        + row * grad.stride(2)
        + column % width * grad.stride(3);
    f32::cast_from(grad[place]) * factor
}

#[cube(launch, address_type = "dynamic")]
fn split_back_kernel<E: Float>(
    grad_0: &Tensor<E>,
    grad_1: &Tensor<E>,
    grad_2: &Tensor<E>,
    grad_3: &Tensor<E>,
    gradient: &mut Tensor<E>,
    sums: &mut Tensor<f32>,
    out_0: &mut Tensor<E>,
    out_1: &mut Tensor<E>,
    out_2: &mut Tensor<E>,
    counters: &mut Tensor<Atomic<u32>>,
    segments: u32,
    factor_0: f32,
    factor_1: f32,
    factor_2: f32,
    factor_3: f32,
    #[comptime] kinds: Kinds,
    #[comptime] ending: Option<Ending>,
    #[define(E)] _dtype: ElemType,
) {
    let column = ABSOLUTE_POS_X as usize;
    let segment = ABSOLUTE_POS_Y as usize;
    let (rows, width) = (grad_0.shape(2), grad_0.shape(1) * grad_0.shape(3));
    if column < width && segment < segments as usize {
        let of_sample = rows.div_ceil(NORM_SEGMENT_ROWS);
        let sample = segment / of_sample;
        let first = (segment % of_sample) * NORM_SEGMENT_ROWS;
        let last = min(first + NORM_SEGMENT_ROWS, rows);
        let count = comptime!(kinds.outputs.len());
        let mut sum_0 = 0.0f32;
        let mut sum_1 = 0.0f32;
        let mut of_parts = Array::<f32>::new(comptime!(kinds.parts));
        #[unroll]
        for part in 0..comptime!(kinds.parts) {
            of_parts[part] = 0.0f32;
        }
        for row in first..last {
            let mut value_0 = 0.0f32;
            let mut value_1 = 0.0f32;
            let mut value_2 = 0.0f32;
            let mut value_3 = 0.0f32;
            if comptime!(kinds.present[0]) {
                value_0 = read_head::<E>(grad_0, sample, row, column, factor_0);
            }
            if comptime!(count > 1 && kinds.present[1 % count]) {
                value_1 = read_head::<E>(grad_1, sample, row, column, factor_1);
            }
            if comptime!(count > 2 && kinds.present[2 % count]) {
                value_2 = read_head::<E>(grad_2, sample, row, column, factor_2);
            }
            if comptime!(count > 3 && kinds.present[3 % count]) {
                value_3 = read_head::<E>(grad_3, sample, row, column, factor_3);
            }
            sum_0 += value_0;
            sum_1 += value_1;
            let to = sample * gradient.stride(0) + row * gradient.stride(1) + column * gradient.stride(2);
            let step = width * gradient.stride(2);
            #[unroll]
            for part in 0..comptime!(kinds.parts) {
                let mut value = 0.0f32;
                if comptime!(kinds.outputs[0].0 == part) {
                    value += value_0;
                }
                if comptime!(count > 1 && kinds.outputs[1 % count].0 == part) {
                    value += value_1;
                }
                if comptime!(count > 2 && kinds.outputs[2 % count].0 == part) {
                    value += value_2;
                }
                if comptime!(count > 3 && kinds.outputs[3 % count].0 == part) {
                    value += value_3;
                }
                gradient[to + part * step] = E::cast_from(value);
                of_parts[part] += value;
            }
        }
        let mut to = segment * sums.stride(0) + column * sums.stride(2);
        let step = sums.stride(1);
        if comptime!(kinds.has_bias) {
            #[unroll]
            for part in 0..comptime!(kinds.parts) {
                sums[to] = of_parts[part];
                to += step;
            }
        }
        if comptime!(kinds.outputs[0].1) {
            sums[to] = sum_0;
            to += step;
        }
        if comptime!(count > 1 && kinds.outputs[1 % count].1) {
            sums[to] = sum_1;
        }
    }
    if comptime!(Ending::is_joined(ending.as_ref())) {
        if is_last_group(counters, CUBE_POS_X as usize, CUBE_COUNT_Y) {
            let mut shared = Shared::<[f32]>::new_slice((COLUMN_THREADS * ROW_THREADS) as usize);
            for row in 0..sums.shape(1) {
                let total = total_of(sums, &mut shared, row, min(column, width - 1));
                if UNIT_POS_Y == 0 && column < width {
                    let ending = comptime!(ending.clone().expect("it is joined"));
                    write_sum::<E, E>(out_0, out_1, out_2, row, column, width, total, ending);
                }
            }
        }
    }
}
