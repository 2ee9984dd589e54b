//! Monotonic alignment search: the best way to share the frames of an utterance among its tokens, in order.

use std::ops::Range;

/// Finds the number of frames of each token, at least 1, that maximizes the sum of the `scores` of the chosen token at each frame
/// (Kim et al. 2020, Glow-TTS). `scores` is `[tokens, stride]`, row after row; the first `frames` values of a row count.
/// Of several best alignments, the one whose tokens begin earliest is returned. The search takes time and memory
/// proportional to `tokens * frames`: one bit for each cell.
///
/// ```
/// use plimsoll_layers::monotonic_alignment;
///
/// // Token 0 fits the first frame, token 1 the other two.
/// assert_eq!(monotonic_alignment(&[1.0, 0.0, 0.0, 0.0, 1.0, 1.0], 2, 3, 3), [1, 2]);
/// ```
///
/// # Panics
/// If there are fewer frames than tokens, no token, or `scores` is shorter than `tokens * stride`.
pub fn monotonic_alignment(scores: &[f32], tokens: usize, frames: usize, stride: usize) -> Vec<u32> {
    assert!(tokens > 0 && frames >= tokens && stride >= frames, "{frames} frames cannot be shared by {tokens} tokens");
    let mut entered = Bits::new(tokens * frames);
    let mut best = vec![f64::NEG_INFINITY; tokens];
    best[0] = f64::from(scores[0]);
    for frame in 1..frames {
        // From the last token down: `best[token - 1]` is still that of the frame before.
        for token in reachable(frame, tokens, frames).rev() {
            let stays = best[token];
            let enters = if token > 0 { best[token - 1] } else { f64::NEG_INFINITY };
            let is_new = enters > stays;
            if is_new {
                entered.set(token * frames + frame);
            }
            best[token] = stays.max(enters) + f64::from(scores[token * stride + frame]);
        }
    }
    let mut durations = vec![0; tokens];
    let mut token = tokens - 1;
    for frame in (0..frames).rev() {
        durations[token] += 1;
        if entered.get(token * frames + frame) {
            token -= 1;
        }
    }
    durations
}

/// Returns the tokens that an alignment can have at `frame`: each token before needs a frame, and each token after.
fn reachable(frame: usize, tokens: usize, frames: usize) -> Range<usize> {
    (frame + tokens).saturating_sub(frames)..(frame + 1).min(tokens)
}

/// A list of bits, all 0 at first.
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn get(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Key;
    use proptest::prelude::*;

    use super::*;

    /// Lists every way to share `frames` frames among `tokens` tokens.
    fn all_alignments(tokens: usize, frames: usize) -> Vec<Vec<u32>> {
        if tokens == 1 {
            return vec![vec![frames as u32]];
        }
        let rest = |first: usize| {
            all_alignments(tokens - 1, frames - first).into_iter().map(move |mut rest| {
                rest.insert(0, first as u32);
                rest
            })
        };
        (1..=frames + 1 - tokens).flat_map(rest).collect()
    }

    fn score(scores: &[f32], durations: &[u32], stride: usize) -> f64 {
        let mut frame = 0;
        let mut sum = 0.0;
        for (token, &duration) in durations.iter().enumerate() {
            sum += (frame..frame + duration as usize).map(|t| f64::from(scores[token * stride + t])).sum::<f64>();
            frame += duration as usize;
        }
        sum
    }

    proptest! {
        #[test]
        fn search_finds_the_best_of_all_alignments(tokens in 1_usize..5, more in 0_usize..6, pad in 0_usize..3, seed: u64) {
            let (frames, key) = (tokens + more, Key::new(seed));
            let stride = frames + pad;
            let scores: Vec<f32> = (0..tokens * stride).map(|i| key.at(i as u64).unit() as f32 - 0.5).collect();
            let found = monotonic_alignment(&scores, tokens, frames, stride);
            let best = all_alignments(tokens, frames).iter().map(|d| score(&scores, d, stride)).fold(f64::MIN, f64::max);
            prop_assert!(found.len() == tokens && found.iter().all(|&d| d > 0));
            prop_assert_eq!(found.iter().sum::<u32>() as usize, frames);
            prop_assert!((score(&scores, &found, stride) - best).abs() < 1e-9);
        }
    }

    #[test]
    fn as_many_tokens_as_frames_have_one_frame_each() {
        assert_eq!(monotonic_alignment(&[0.0; 9], 3, 3, 3), [1, 1, 1]);
        assert_eq!(monotonic_alignment(&[-5.0; 4], 1, 4, 4), [4]);
    }
    /// Makes scores `[b, t, k]`, and for each utterance its numbers of tokens and frames: all of them first, then any.
    #[cfg(feature = "wgpu")]
    fn drawn(key: Key, [b, t, k]: [usize; 3], largest: f64) -> (Vec<f32>, [Vec<u32>; 2]) {
        let scores = (0..b * t * k).map(|i| ((key.at(i as u64).unit() - 0.9) * largest) as f32).collect();
        let lengths = |name: &str, most: usize| {
            let any = |index: usize| key.with(name).at(index as u64).below(most as u64 + 1) as u32;
            (0..b).map(|index| if index == 0 { most as u32 } else { any(index) }).collect()
        };
        (scores, [lengths("tokens", k), lengths("frames", t)])
    }

    /// Needs a device with Vulkan, Metal or WebGPU; a software device will do.
    #[cfg(feature = "wgpu")]
    #[test]
    fn device_kernels_find_the_alignments_of_the_host() {
        use burn::tensor::{Device, DeviceKind, Tensor, TensorData};
        use plimsoll_tape::gpu::share_frames;

        use crate::Lengths;

        let gpu = Device::wgpu(DeviceKind::DefaultDevice);
        let cases = [
            ([1, 1, 1], 1.0),
            ([3, 40, 7], 4.0),
            ([2, 33, 33], 1.0),
            ([4, 31, 40], 1.0),
            ([2, 700, 180], 30.0),
            ([1, 2300, 900], 50.0),
        ];
        for (case, (shape, largest)) in cases.into_iter().enumerate() {
            let [b, t, k] = shape;
            let (scores, [tokens, frames]) = drawn(Key::new(case as u64), shape, largest);
            let run = || {
                let [tokens, frames] = [(&tokens, k), (&frames, t)]
                    .map(|(each, width)| Lengths::new(each.clone(), width).attention_mask(false));
                let on_gpu = Tensor::<3>::from_data(TensorData::new(scores.clone(), shape), &gpu);
                let found = share_frames(on_gpu, &tokens, &frames, 20.0).expect("a GPU has the kernels");
                let values = |data: TensorData| data.try_into_vec::<f32>().unwrap();
                let (durations, places) = (values(found.durations.into_data()), values(found.places.into_data()));
                (durations, places, values(found.expansion.into_data()))
            };
            let (durations, places, expansion) = run();
            for index in 0..b {
                let (count, valid) = (tokens[index] as usize, frames[index] as usize);
                let own = &scores[index * t * k..][..t * k];
                let found: Vec<u32> = durations[index * k..][..count].iter().map(|&frames| frames as u32).collect();
                let first: Vec<u32> = (0..count).map(|token| u32::from(token < valid)).collect();
                if count == 0 || count > valid {
                    assert_eq!(found, first, "case {case}, utterance {index}");
                } else {
                    let turned: Vec<f32> =
                        (0..k).flat_map(|token| (0..t).map(move |frame| own[frame * k + token])).collect();
                    let best = monotonic_alignment(&turned, count, valid, t);
                    let lost = score(&turned, &best, t) - score(&turned, &found, t);
                    assert!(found.iter().all(|&frames| frames > 0), "case {case}, utterance {index}");
                    assert!((0.0..1e-3 * largest).contains(&lost.max(0.0)), "case {case}, utterance {index}: {lost}");
                }
                assert!(durations[index * k + count..(index + 1) * k].iter().all(|&frames| frames == 0.0));
                let mut expected = (vec![0.0; t * 2], vec![0.0; t * k]);
                let of_frames = found
                    .iter()
                    .enumerate()
                    .flat_map(|(token, &frames)| (0..frames).map(move |place| (token, place, frames)));
                for (frame, (token, place, frames)) in of_frames.enumerate() {
                    expected.0[frame * 2] = (place as f32 + 0.5) / frames as f32;
                    expected.0[frame * 2 + 1] = frames as f32 / 20.0;
                    expected.1[frame * k + token] = 1.0;
                }
                for (found, expected) in places[index * t * 2..][..t * 2].iter().zip(&expected.0) {
                    assert!((found - expected).abs() < 1e-6, "case {case}, utterance {index}");
                }
                assert!(expansion[index * t * k..][..t * k] == expected.1, "case {case}, utterance {index}");
            }
            assert!(run() == (durations, places, expansion), "case {case}: two runs differ");
        }
    }
}
