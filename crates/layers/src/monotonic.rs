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
}
