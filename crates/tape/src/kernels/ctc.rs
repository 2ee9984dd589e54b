//! Kernels of the CTC loss and its gradient: softmax, all paths from both ends at once, and the share of each token in each frame.
//!
//! Sums over paths are logarithms in fp32. The paths of a sample are moved to the largest of a frame every few frames, and the shares of a
//! frame are divided by their sum, so that nothing is lost in long recordings. Each number is written by one thread in one order: two
//! runs give the same bits.

use burn::tensor::DType;
use burn_backend::TensorMetadata;
use burn_backend::cubecl::dtype_to_storage_type;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::rows::{GROUP_ROWS, ROW_THREADS, joined_in_group, largest_of_row, sum_of_row};
use super::{CTC_HEAD, CtcRule, address_of};

// Shapes: b samples, t frames, v tokens of the vocabulary, s states of the longest text, u tokens of the longest text.

/// Logarithm of a share of zero. The sum of two of them is finite.
const NOTHING: f32 = -1.0e30;
/// Less than every logit.
const LOWEST: f32 = -3.0e38;
/// Frames after which the paths are moved to their largest.
const MOVED_EVERY: usize = 4;
/// Most threads that compute the paths of a sample from one end.
const PATH_THREADS: usize = 256;
/// Threads that compute the shares of a frame.
const SHARE_THREADS: usize = 64;

/// Computes the negative log-probabilities `[b]` of texts by `logits` `[b, t, v]`, and their gradient if `rule` asks for it. `index` `[b, i]`
/// holds the texts as [`CtcRule`] says.
pub(super) fn ctc(logits: CubeTensor, index: CubeTensor, rule: &CtcRule) -> (CubeTensor, Option<CubeTensor>) {
    let shape = logits.shape();
    let [b, t] = [shape[0], shape[1]];
    let new = |shape: &[usize], dtype| {
        empty_device_dtype(logits.client.clone(), logits.device.clone(), shape.to_vec().into(), dtype)
    };
    let losses = new(&[b], DType::F32);
    let gradient = rule.has_gradient.then(|| new(&[b, t, shape[2]], DType::F32));
    let dtype = dtype_to_storage_type(logits.dtype);
    let norms = new(&[b, t, 2], DType::F32);
    let paths = new(&rule.paths_shape(b, t), DType::F32);
    let address = address_of(&[&logits, &paths, &index]);
    let client = logits.client.clone();
    // Where there is no gradient, another tensor takes its place, and the kernel is compiled without a use of it.
    let written = || gradient.clone().unwrap_or_else(|| norms.clone()).into_tensor_arg();
    softmax_kernel::launch(
        &client,
        CubeCount::new_3d(t.div_ceil(GROUP_ROWS as usize) as u32, 1, b as u32),
        CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
        address,
        logits.clone().into_tensor_arg(),
        index.clone().into_tensor_arg(),
        norms.clone().into_tensor_arg(),
        written(),
        rule.has_gradient,
        dtype,
    );
    let room = rule.room();
    let threads = room.min(PATH_THREADS);
    paths_kernel::launch(
        &client,
        CubeCount::new_2d(b as u32, if rule.has_gradient { 2 } else { 1 }),
        CubeDim::new_1d(threads as u32),
        address,
        logits.clone().into_tensor_arg(),
        index.clone().into_tensor_arg(),
        norms.clone().into_tensor_arg(),
        paths.clone().into_tensor_arg(),
        losses.clone().into_tensor_arg(),
        rule.states as u32,
        threads,
        room / threads,
        rule.has_gradient,
        dtype,
    );
    if rule.has_gradient {
        shares_kernel::launch(
            &client,
            CubeCount::new_2d(t as u32, b as u32),
            CubeDim::new_1d(SHARE_THREADS as u32),
            address,
            logits.clone().into_tensor_arg(),
            index.into_tensor_arg(),
            norms.clone().into_tensor_arg(),
            paths.into_tensor_arg(),
            written(),
            rule.states as u32,
            rule.tokens as u32,
            room,
            dtype,
        );
    }
    (losses, gradient)
}

/// Writes the largest logit of each frame and the logarithm of the sum of the exponentials below it, and the softmax of valid frames as the first part of the gradient.
#[cube(launch, address_type = "dynamic")]
fn softmax_kernel<E: Float>(
    logits: &Tensor<E>,
    index: &Tensor<i32>,
    norms: &mut Tensor<f32>,
    gradient: &mut Tensor<f32>,
    #[comptime] has_gradient: bool,
    #[define(E)] _dtype: ElemType,
) {
    let sample = CUBE_POS_Z as usize;
    let row = (CUBE_POS_X * GROUP_ROWS + UNIT_POS_Y) as usize;
    let (frames, width) = (logits.shape(1), logits.shape(2));
    let mut shared = Shared::<[f32]>::new_slice((ROW_THREADS * GROUP_ROWS) as usize);
    // Threads beyond the last row compute it once more and write nothing: all of a group take part in a sum.
    let is_row = row < frames;
    let row = min(row, frames - 1);
    let place = sample * logits.stride(0) + row * logits.stride(1);
    let step = logits.stride(2);
    let mut largest = f32::new(LOWEST);
    let mut token = UNIT_POS_X as usize;
    while token < width {
        largest = max(largest, f32::cast_from(logits[place + token * step]));
        token += ROW_THREADS as usize;
    }
    let largest = largest_of_row(&mut shared, largest);
    let mut sum = 0.0f32;
    let mut token = UNIT_POS_X as usize;
    while token < width {
        sum += (f32::cast_from(logits[place + token * step]) - largest).exp();
        token += ROW_THREADS as usize;
    }
    let sum = sum_of_row(&mut shared, sum);
    if is_row {
        if UNIT_POS_X == 0 {
            let (norm, next) = (sample * norms.stride(0) + row * norms.stride(1), norms.stride(2));
            norms[norm] = largest;
            norms[norm + next] = sum.ln();
        }
        if has_gradient {
            let valid = index[sample * index.stride(0)] as usize;
            let states = index[sample * index.stride(0) + 1];
            let is_valid = row < valid && states > 0;
            let to = sample * gradient.stride(0) + row * gradient.stride(1);
            let to_step = gradient.stride(2);
            let mut token = UNIT_POS_X as usize;
            while token < width {
                let mut value = 0.0f32;
                if is_valid {
                    value = (f32::cast_from(logits[place + token * step]) - largest).exp() / sum;
                }
                gradient[to + token * to_step] = value;
                token += ROW_THREADS as usize;
            }
        }
    }
}

/// Computes the logarithm of the sum of three exponentials.
#[cube]
fn log_sum(one: f32, two: f32, three: f32) -> f32 {
    let largest = max(one, max(two, three));
    largest + ((one - largest).exp() + (two - largest).exp() + (three - largest).exp()).ln()
}

/// Computes the paths of a sample from its first frame on, and from its last: the groups of the second row go backwards. Backwards the
/// states are counted from the last, and the steps are the same then. A path that ends in a state of a frame counts the logit of that
/// frame forwards, and not backwards.
#[cube(launch, address_type = "dynamic")]
fn paths_kernel<E: Float>(
    logits: &Tensor<E>,
    index: &Tensor<i32>,
    norms: &Tensor<f32>,
    paths: &mut Tensor<f32>,
    losses: &mut Tensor<f32>,
    most_states: u32,
    #[comptime] threads: usize,
    #[comptime] each: usize,
    #[comptime] has_gradient: bool,
    #[define(E)] _dtype: ElemType,
) {
    let sample = CUBE_POS_X as usize;
    let is_back = CUBE_POS_Y == 1;
    let unit = UNIT_POS_X as usize;
    let first = sample * index.stride(0);
    let frames = index[first] as usize;
    let states = index[first + 1] as usize;
    let tokens = first + comptime!(CTC_HEAD);
    let mut row = Shared::<[f32]>::new_slice(comptime!(threads * each));
    let mut shared = Shared::<[f32]>::new_slice(threads);
    let mut ends = Array::<f32>::new(each);
    let mut moved = 0.0f32;
    let logits_of = sample * logits.stride(0);
    let norms_of = sample * norms.stride(0);
    let mut paths_of = sample * paths.stride(1);
    if is_back {
        paths_of += paths.stride(0);
    }
    // A sample that is left out has no states, and so no frame here.
    let mut count = frames;
    if states == 0 {
        count = 0;
    }
    for passed in 0..count {
        let frame = select(is_back, frames - 1 - passed, passed);
        let norm = norms_of + frame * norms.stride(1);
        let (highest, rest) = (norms[norm], norms[norm + norms.stride(2)]);
        let path_step = paths.stride(2);
        let paths_of = paths_of + frame * most_states as usize * path_step;
        #[unroll]
        for part in 0..each {
            let state = unit + part * threads;
            let mut end = f32::new(NOTHING);
            if state < states {
                let place = select(is_back, states - 1 - state, state);
                if passed == 0 {
                    if state < 2 {
                        end = 0.0f32;
                    }
                } else {
                    let mut beside = f32::new(NOTHING);
                    let mut skipping = f32::new(NOTHING);
                    if state >= 1 {
                        beside = row[state - 1];
                    }
                    if state >= 2 && state % 2 == 1 {
                        // A path may skip the blank between two different tokens.
                        let other = select(is_back, place + 2, place - 2);
                        if index[tokens + place] != index[tokens + other] {
                            skipping = row[state - 2];
                        }
                    }
                    end = log_sum(row[state], beside, skipping);
                }
                let token = index[tokens + place] as usize;
                let logit = f32::cast_from(logits[logits_of + frame * logits.stride(1) + token * logits.stride(2)]);
                // An impossible token leaves a path without a share, which is a number.
                let with_frame = max(end + (logit - highest - rest), f32::new(NOTHING));
                if has_gradient {
                    let mut kept = with_frame;
                    if is_back {
                        kept = end;
                    }
                    paths[paths_of + place * path_step] = kept;
                }
                end = with_frame;
            }
            ends[part] = end;
        }
        if passed % comptime!(MOVED_EVERY) == comptime!(MOVED_EVERY - 1) {
            let mut largest = f32::new(NOTHING);
            #[unroll]
            for part in 0..each {
                largest = max(largest, ends[part]);
            }
            let largest = joined_in_group(&mut shared, largest, threads, false);
            moved += largest;
            #[unroll]
            for part in 0..each {
                ends[part] -= largest;
            }
        }
        // All have read what was before this frame.
        sync_cube();
        #[unroll]
        for part in 0..each {
            row[unit + part * threads] = ends[part];
        }
        sync_cube();
    }
    if unit == 0 && !is_back {
        let mut loss = 0.0f32;
        if count > 0 {
            let mut last_but_one = f32::new(NOTHING);
            if states > 1 {
                last_but_one = row[states - 2];
            }
            loss = 0.0f32 - (log_sum(row[states - 1], last_but_one, f32::new(NOTHING)) + moved);
        }
        let to = sample * losses.stride(0);
        losses[to] = loss;
    }
}

/// Subtracts from the gradient of each frame the share of the paths that read a token there.
#[cube(launch, address_type = "dynamic")]
fn shares_kernel<E: Float>(
    logits: &Tensor<E>,
    index: &Tensor<i32>,
    norms: &Tensor<f32>,
    paths: &Tensor<f32>,
    gradient: &mut Tensor<f32>,
    most_states: u32,
    most_tokens: u32,
    #[comptime] room: usize,
    #[define(E)] _dtype: ElemType,
) {
    let (frame, sample) = (CUBE_POS_X as usize, CUBE_POS_Y as usize);
    let unit = UNIT_POS_X as usize;
    let threads = comptime!(SHARE_THREADS);
    let first = sample * index.stride(0);
    let states = index[first + 1] as usize;
    let mut shared = Shared::<[f32]>::new_slice(threads);
    let mut shares = Shared::<[f32]>::new_slice(room);
    if frame < index[first] as usize && states > 0 {
        let forward = sample * paths.stride(1) + frame * most_states as usize * paths.stride(2);
        let backward = forward + paths.stride(0);
        let mut largest = f32::new(LOWEST);
        let mut state = unit;
        while state < states {
            let both = paths[forward + state * paths.stride(2)] + paths[backward + state * paths.stride(2)];
            shares[state] = both;
            largest = max(largest, both);
            state += threads;
        }
        let largest = joined_in_group(&mut shared, largest, threads, false);
        let mut blanks = 0.0f32;
        let mut others = 0.0f32;
        let mut state = unit;
        while state < states {
            let share = (shares[state] - largest).exp();
            shares[state] = share;
            if state % 2 == 0 {
                blanks += share;
            } else {
                others += share;
            }
            state += threads;
        }
        let blanks = joined_in_group(&mut shared, blanks, threads, true);
        let others = joined_in_group(&mut shared, others, threads, true);
        let all = blanks + others;

        let from = sample * logits.stride(0) + frame * logits.stride(1);
        let to = sample * gradient.stride(0) + frame * gradient.stride(1);
        let to_step = gradient.stride(2);
        let norm = sample * norms.stride(0) + frame * norms.stride(1);
        let (highest, rest) = (norms[norm], norms[norm + norms.stride(2)]);
        if unit == 0 {
            let softmax = (f32::cast_from(logits[from]) - highest - rest).exp();
            gradient[to] = softmax - blanks / all;
        }
        // The tokens of the text, each once, with the states that read it.
        let tokens = first + comptime!(CTC_HEAD) + most_states as usize;
        let begins = tokens + most_tokens as usize;
        let order = begins + most_tokens as usize + 1;
        let mut which = unit;
        while which < index[first + 2] as usize {
            let mut share = 0.0f32;
            for place in (index[begins + which] as usize)..(index[begins + which + 1] as usize) {
                share += shares[index[order + place] as usize];
            }
            let token = index[tokens + which] as usize;
            let softmax = (f32::cast_from(logits[from + token * logits.stride(2)]) - highest - rest).exp();
            gradient[to + token * to_step] = softmax - share / all;
            which += threads;
        }
    }
}
