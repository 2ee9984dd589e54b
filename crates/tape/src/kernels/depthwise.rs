//! Kernels of the depthwise convolution over time.
//!
//! They read tensors of any layout and allocate nothing but their result. Sums are in fp32.

use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::sums::{Ending, Rows, Sums, is_last_group, total_of, write_sum};
use super::{SEGMENT_FRAMES, address_of, sums_shape, tap_groups};

// Shapes: b batch, t frames, d channels, k frames of the kernel.

/// Threads of a group along the channels, whose values lie beside each other in memory.
const CHANNEL_THREADS: u32 = 32;
/// Threads of a group along the other axis.
const ROW_THREADS: u32 = 8;
/// Frames of the result that one thread computes, so that it reads each weight once for all of them.
const FRAMES: usize = 4;

/// Convolves `x` `[b, t, d]` with `weight` `[d, 1, k]` and adds `bias` `[d]`. Without a bias the kernels are turned around
/// in time, which gives the gradient of the input.
pub(super) fn convolve(x: CubeTensor, weight: CubeTensor, bias: Option<CubeTensor>) -> CubeTensor {
    let shape = x.shape();
    let [b, t, d] = [shape[0], shape[1], shape[2]];
    let taps = weight.shape()[2];
    let out = empty_device_dtype(x.client.clone(), x.device.clone(), shape, x.dtype);
    if b * t * d == 0 {
        return out;
    }
    let (is_flipped, dtype) = (bias.is_none(), dtype_to_storage_type(x.dtype));
    let address = address_of(&[&x, &weight, &out]);
    convolve_kernel::launch(
        &out.client,
        groups(d, t.div_ceil(FRAMES), b),
        CubeDim::new_2d(CHANNEL_THREADS, ROW_THREADS),
        address,
        x.into_tensor_arg(),
        weight.into_tensor_arg(),
        bias.map(CubeTensor::into_tensor_arg).into(),
        out.clone().into_tensor_arg(),
        taps,
        is_flipped,
        dtype,
    );
    out
}

/// Sums the products of `grad_output` and `x`, both `[b, t, d]`, over all frames: the gradients of the weight `[d, 1, k]` and of the bias
/// `[d]`.
pub(super) fn sums(x: CubeTensor, grad_output: CubeTensor, taps: usize) -> Vec<CubeTensor> {
    let shape = sums_shape(&x.shape(), taps);
    let (segments, d) = (shape[0], shape[2]);
    let rows = vec![Rows::turned(taps, d), Rows::joined(1, d)];
    let sums = Sums::new(&x, shape, rows, [x.dtype; 2], tap_groups(d, taps));
    if segments * d > 0 {
        let dtype = dtype_to_storage_type(x.dtype);
        let address = address_of(&[&x, &grad_output]);
        sums_kernel::launch(
            &x.client.clone(),
            groups(d, taps + 1, segments),
            CubeDim::new_2d(CHANNEL_THREADS, ROW_THREADS),
            address,
            x.into_tensor_arg(),
            grad_output.into_tensor_arg(),
            sums.segments(),
            sums.output(0),
            sums.output(1),
            sums.output(2),
            sums.counters(),
            taps,
            sums.ending(),
            dtype,
        );
    }
    sums.finish()
}

/// Returns how many groups of threads cover `channels` by `rows` by `depth`.
fn groups(channels: usize, rows: usize, depth: usize) -> CubeCount {
    let blocks = |count: usize, threads: u32| count.div_ceil(threads as usize) as u32;
    CubeCount::new_3d(blocks(channels, CHANNEL_THREADS), blocks(rows, ROW_THREADS), depth as u32)
}

#[cube(launch, address_type = "dynamic")]
fn convolve_kernel<E: Float>(
    x: &Tensor<E>,
    weight: &Tensor<E>,
    bias: ComptimeOption<&Tensor<E>>,
    out: &mut Tensor<E>,
    #[comptime] taps: usize,
    #[comptime] is_flipped: bool,
    #[define(E)] _dtype: ElemType,
) {
    let channel = ABSOLUTE_POS_X as usize;
    let first = ABSOLUTE_POS_Y as usize * FRAMES;
    let sample = CUBE_POS_Z as usize;
    let frames = x.shape(1);
    if channel >= x.shape(2) || first >= frames {
        terminate!();
    }
    #[comptime]
    let start = match bias {
        ComptimeOption::Some(bias) => f32::cast_from(bias[channel * bias.stride(0)]),
        ComptimeOption::None => 0.0f32.runtime(),
    };
    let mut sums = Array::<f32>::new(FRAMES);
    #[unroll]
    for frame in 0..FRAMES {
        sums[frame] = start;
    }
    let side = comptime!(taps / 2);
    let place = sample * x.stride(0) + channel * x.stride(2);
    let kernel = channel * weight.stride(0);
    for tap in 0..taps {
        let position = if comptime!(is_flipped) { taps - 1 - tap } else { tap };
        let w = f32::cast_from(weight[kernel + position * weight.stride(2)]);
        #[unroll]
        for frame in 0..FRAMES {
            // One side more than the frame that is read, which may lie before the first one.
            let from = first + frame + tap;
            if from >= side && from < frames + side {
                sums[frame] += w * f32::cast_from(x[place + (from - side) * x.stride(1)]);
            }
        }
    }
    let place = sample * out.stride(0) + channel * out.stride(2);
    let row = out.stride(1);
    #[unroll]
    for frame in 0..FRAMES {
        if first + frame < frames {
            out[place + (first + frame) * row] = E::cast_from(sums[frame]);
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn sums_kernel<E: Float>(
    x: &Tensor<E>,
    grad_output: &Tensor<E>,
    out: &mut Tensor<f32>,
    out_0: &mut Tensor<E>,
    out_1: &mut Tensor<E>,
    out_2: &mut Tensor<E>,
    counters: &mut Tensor<Atomic<u32>>,
    #[comptime] taps: usize,
    #[comptime] ending: Ending,
    #[define(E)] _dtype: ElemType,
) {
    let channel = ABSOLUTE_POS_X as usize;
    let tap = ABSOLUTE_POS_Y as usize;
    let segment = CUBE_POS_Z as usize;
    let frames = x.shape(1);
    let channels = x.shape(2);
    if channel < channels && tap <= taps {
        let of_sample = frames.div_ceil(SEGMENT_FRAMES);
        let sample = segment / of_sample;
        let first = (segment % of_sample) * SEGMENT_FRAMES;
        let last = min(first + SEGMENT_FRAMES, frames);
        let side = comptime!(taps / 2);
        let grads = sample * grad_output.stride(0) + channel * grad_output.stride(2);
        let values = sample * x.stride(0) + channel * x.stride(2);
        let mut sum = 0.0f32;
        if tap == taps {
            for frame in first..last {
                sum += f32::cast_from(grad_output[grads + frame * grad_output.stride(1)]);
            }
        } else {
            for frame in first..last {
                // One side more than the frame that is read, which may lie before the first one.
                let from = frame + tap;
                if from >= side && from < frames + side {
                    let value = f32::cast_from(x[values + (from - side) * x.stride(1)]);
                    sum += value * f32::cast_from(grad_output[grads + frame * grad_output.stride(1)]);
                }
            }
        }
        let place = segment * out.stride(0) + tap * out.stride(1) + channel * out.stride(2);
        out[place] = sum;
    }
    if comptime!(ending.is_joined) {
        let place = (CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X) as usize;
        if is_last_group(counters, place, CUBE_COUNT_Z) {
            let mut shared = Shared::<[f32]>::new_slice((CHANNEL_THREADS * ROW_THREADS) as usize);
            let first = CUBE_POS_Y as usize * ROW_THREADS as usize;
            for row in first..min(first + ROW_THREADS as usize, taps + 1) {
                let total = total_of(out, &mut shared, row, min(channel, channels - 1));
                if UNIT_POS_Y == 0 && channel < channels {
                    write_sum::<E, E>(out_0, out_1, out_2, row, channel, channels, total, comptime!(ending.clone()));
                }
            }
        }
    }
}
