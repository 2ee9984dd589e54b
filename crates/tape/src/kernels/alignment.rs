//! Kernels of monotonic alignment: the best sums up to each token and frame, the way back from the end, and what it gives to each frame.
//!
//! Sums are in fp32, and are moved to the largest of a frame every few frames, so that nothing is lost in long recordings.

use burn::tensor::{DType, Shape};
use burn_backend::TensorMetadata;
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::rows::{GROUP_ROWS, ROW_THREADS, joined_in_group};
use super::{FRAMES_IN_WORD, address_of, room_for, share_shapes};

// Shapes: b utterances, k tokens, t frames.

/// Less than every sum, and a number that stays one when scores are added.
const NOTHING: f32 = -1.0e30;
/// Frames after which the sums are moved to their largest.
const MOVED_EVERY: usize = 4;
/// Most threads that compute the sums of an utterance.
const SUM_THREADS: usize = 256;

/// Shares frames among tokens as [`KernelBackend::share_frames`](super::KernelBackend::share_frames) says.
pub(super) fn share(scores: CubeTensor, tokens: CubeTensor, frames: CubeTensor, unit: f32) -> [CubeTensor; 3] {
    let shape = scores.shape();
    let [b, t, k] = [shape[0], shape[1], shape[2]];
    let [expansion, places, durations, entered, begins] = share_shapes(&shape);
    let new = |shape: Shape, dtype| empty_device_dtype(scores.client.clone(), scores.device.clone(), shape, dtype);
    let (expansion, places) = (new(expansion, DType::F32), new(places, DType::F32));
    let durations = new(durations, DType::F32);
    let (entered, begins) = (new(entered, DType::U32), new(begins, DType::I32));
    let address = address_of(&[&scores, &expansion, &entered]);
    let client = scores.client.clone();
    let room = room_for(k);
    let threads = room.min(SUM_THREADS);
    sums_kernel::launch(
        &client,
        CubeCount::new_1d(b as u32),
        CubeDim::new_1d(threads as u32),
        address,
        scores.into_tensor_arg(),
        tokens.clone().into_tensor_arg(),
        frames.clone().into_tensor_arg(),
        entered.clone().into_tensor_arg(),
        threads,
        room / threads,
    );
    begins_kernel::launch(
        &client,
        CubeCount::new_1d(b as u32),
        CubeDim::new_1d(ROW_THREADS),
        address,
        entered.into_tensor_arg(),
        tokens.clone().into_tensor_arg(),
        frames.clone().into_tensor_arg(),
        begins.clone().into_tensor_arg(),
        k as u32,
    );
    fill_kernel::launch(
        &client,
        CubeCount::new_3d(k.div_ceil(ROW_THREADS as usize) as u32, t.div_ceil(GROUP_ROWS as usize) as u32, b as u32),
        CubeDim::new_2d(ROW_THREADS, GROUP_ROWS),
        address,
        begins.into_tensor_arg(),
        tokens.into_tensor_arg(),
        frames.into_tensor_arg(),
        expansion.clone().into_tensor_arg(),
        places.clone().into_tensor_arg(),
        durations.clone().into_tensor_arg(),
        unit,
    );
    [expansion, places, durations]
}

/// Computes for each utterance the largest sum of scores that ends at each token and frame, and writes a bit for it into `entered`: whether
/// the frame is the first of its token. A word has the bits of a token in 32 frames.
#[cube(launch, address_type = "dynamic")]
fn sums_kernel(
    scores: &Tensor<f32>,
    tokens: &Tensor<i32>,
    frames: &Tensor<i32>,
    entered: &mut Tensor<u32>,
    #[comptime] threads: usize,
    #[comptime] each: usize,
) {
    let sample = CUBE_POS_X as usize;
    let unit = UNIT_POS_X as usize;
    let count = tokens[sample * tokens.stride(0)] as usize;
    let valid = frames[sample * frames.stride(0)] as usize;
    let width = scores.shape(2);
    let mut row = Shared::<[f32]>::new_slice(comptime!(threads * each));
    let mut shared = Shared::<[f32]>::new_slice(threads);
    let mut sums = Array::<f32>::new(each);
    let mut words = Array::<u32>::new(each);
    #[unroll]
    for part in 0..each {
        words[part] = 0u32;
    }
    // More tokens than frames are not searched.
    let mut searched = valid;
    if count > valid {
        searched = 0;
    }
    for frame in 0..searched {
        let bit = frame % comptime!(FRAMES_IN_WORD);
        let is_whole = bit == comptime!(FRAMES_IN_WORD - 1) || frame == searched - 1;
        #[unroll]
        for part in 0..each {
            let token = unit + part * threads;
            let mut sum = f32::new(NOTHING);
            if token < count {
                let score = scores[sample * scores.stride(0) + frame * scores.stride(1) + token * scores.stride(2)];
                if frame == 0 {
                    if token == 0 {
                        sum = score;
                    }
                } else {
                    let stays = row[token];
                    let mut enters = f32::new(NOTHING);
                    if token >= 1 {
                        enters = row[token - 1];
                    }
                    if enters > stays {
                        words[part] |= 1u32 << bit as u32;
                    }
                    sum = max(stays, enters) + score;
                }
                // What cannot be reached stays a number.
                sum = max(sum, f32::new(NOTHING));
                if is_whole {
                    let word = frame / comptime!(FRAMES_IN_WORD) * width + token;
                    let to = sample * entered.stride(0) + word * entered.stride(1);
                    entered[to] = words[part];
                    words[part] = 0u32;
                }
            }
            sums[part] = sum;
        }
        if frame % comptime!(MOVED_EVERY) == comptime!(MOVED_EVERY - 1) {
            let mut largest = f32::new(NOTHING);
            #[unroll]
            for part in 0..each {
                largest = max(largest, sums[part]);
            }
            let largest = joined_in_group(&mut shared, largest, threads, false);
            #[unroll]
            for part in 0..each {
                sums[part] -= largest;
            }
        }
        // All have read what was before this frame.
        sync_cube();
        #[unroll]
        for part in 0..each {
            row[unit + part * threads] = sums[part];
        }
        sync_cube();
    }
}

/// Goes back from the last token and frame of each utterance, and writes the first frame of each token. Behind the tokens it is the number of
/// frames.
#[cube(launch, address_type = "dynamic")]
fn begins_kernel(
    entered: &Tensor<u32>,
    tokens: &Tensor<i32>,
    frames: &Tensor<i32>,
    begins: &mut Tensor<i32>,
    width: u32,
) {
    let sample = CUBE_POS_X as usize;
    let unit = UNIT_POS_X as usize;
    let count = tokens[sample * tokens.stride(0)] as usize;
    let valid = frames[sample * frames.stride(0)] as usize;
    let is_searched = count > 0 && count <= valid;
    let to = sample * begins.stride(0);
    let step = begins.stride(1);
    let mut token = unit;
    while token <= width as usize {
        if token >= count {
            begins[to + token * step] = valid as i32;
        } else if !is_searched {
            begins[to + token * step] = min(token, valid) as i32;
        }
        token += ROW_THREADS as usize;
    }
    if unit == 0 && is_searched {
        let from = sample * entered.stride(0);
        let mut token = count - 1;
        for passed in 0..valid {
            let frame = valid - 1 - passed;
            let place = frame / comptime!(FRAMES_IN_WORD) * width as usize + token;
            let word = entered[from + place * entered.stride(1)];
            let bit = (word >> (frame % comptime!(FRAMES_IN_WORD)) as u32) & 1u32;
            if bit == 1u32 && token > 0 {
                begins[to + token * step] = frame as i32;
                token -= 1;
            }
        }
        // One token is left, but for scores that are no numbers.
        for first in 0..token + 1 {
            begins[to + first * step] = 0;
        }
    }
}

/// Writes the token of each frame, the place of each frame in it, and the number of frames of each token.
#[cube(launch, address_type = "dynamic")]
fn fill_kernel(
    begins: &Tensor<i32>,
    tokens: &Tensor<i32>,
    frames: &Tensor<i32>,
    expansion: &mut Tensor<f32>,
    places: &mut Tensor<f32>,
    durations: &mut Tensor<f32>,
    unit: f32,
) {
    let token = (CUBE_POS_X * ROW_THREADS + UNIT_POS_X) as usize;
    let frame = (CUBE_POS_Y * GROUP_ROWS + UNIT_POS_Y) as usize;
    let sample = CUBE_POS_Z as usize;
    if token < expansion.shape(2) && frame < expansion.shape(1) {
        let from = sample * begins.stride(0) + token * begins.stride(1);
        let (begin, end) = (begins[from] as usize, begins[from + begins.stride(1)] as usize);
        let duration = f32::cast_from(end - begin);
        let is_its = frame >= begin && frame < end;
        let to = sample * expansion.stride(0) + frame * expansion.stride(1) + token * expansion.stride(2);
        expansion[to] = select(is_its, 1.0f32, 0.0f32);
        let place = sample * places.stride(0) + frame * places.stride(1);
        let second = place + places.stride(2);
        if is_its {
            places[place] = (f32::cast_from(frame - begin) + 0.5f32) / duration;
            places[second] = duration / unit;
        }
        let has_token = frame < frames[sample * frames.stride(0)] as usize && tokens[sample * tokens.stride(0)] > 0;
        if token == 0 && !has_token {
            places[place] = 0.0f32;
            places[second] = 0.0f32;
        }
        if frame == 0 {
            let to = sample * durations.stride(0) + token * durations.stride(1);
            durations[to] = duration;
        }
    }
}
