//! Durations: how many frames each token of a text lasts, found in training and predicted in generation.

use burn::tensor::{Device, Tensor};
use plimsoll_core::{TimeOwner, timing};
use plimsoll_layers::{Lengths, monotonic_alignment};
use plimsoll_tape::transfer::from_host;
use plimsoll_tape::{inner_device, is_capture_device, runs_host_ops, without_autodiff};
use rayon::prelude::*;

// Shapes: b texts, k tokens, t frames, f features.

/// Number of frames by which the relative duration of a token is scaled: about the duration of a vowel.
pub(super) const LONG_TOKEN: f32 = 20.0;

/// The number of frames of each token, for all texts of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// Frames of each token, for each text.
    pub frames: Vec<Vec<u32>>,
    /// Number of reads from the device for which the search waited: 1 on a GPU, 0 on the CPU.
    pub reads: u32,
}

impl Durations {
    /// Finds the durations that fit best: `prior` `[b, k, f]` is the frame that each token expects, `target` `[b, t, f]` are
    /// the true frames. A text with more tokens than frames gets one frame for each of its first tokens.
    ///
    /// No gradient depends on the search. It runs on the CPU, the texts in parallel, so that all devices find the same.
    pub fn search(prior: Tensor<3>, target: Tensor<3>, tokens: &Lengths, frames: &Lengths) -> Self {
        let (prior, target) = (without_autodiff(prior), without_autodiff(target));
        let device = inner_device(&prior.device());
        let reads = u32::from(!runs_host_ops(&device));
        let sizes = tokens.each().iter().zip(frames.each());
        // The square of the true frame is the same for all tokens, so it is left out.
        let own = prior.clone().square().sum_dim(2) * 0.5;
        let scores = prior.matmul(target.swap_dims(1, 2)) - own;
        if is_capture_device(&device) {
            return Self { frames: sizes.map(|(&tokens, &frames)| evenly(tokens, frames)).collect(), reads };
        }
        let read = || scores.into_data().convert::<f32>();
        let data = if reads > 0 { timing::measure(TimeOwner::Read, read) } else { read() };
        let scores: Vec<f32> = data.try_into_vec().expect("converted to f32");
        let (k, t) = (tokens.width(), frames.width());
        let search = |(index, (&tokens, &frames)): (usize, (&u32, &u32))| match tokens > 0 && frames >= tokens {
            true => monotonic_alignment(&scores[index * k * t..], tokens as usize, frames as usize, t),
            false => evenly(tokens, frames),
        };
        let sizes: Vec<(usize, (&u32, &u32))> = sizes.enumerate().collect();
        Self { frames: sizes.into_par_iter().map(search).collect(), reads }
    }

    /// Returns the number of frames of each text, padded to the longest.
    pub fn lengths(&self) -> Lengths {
        let lengths: Vec<u32> = self.frames.iter().map(|text| text.iter().sum()).collect();
        let width = lengths.iter().copied().max().unwrap_or(0).max(1) as usize;
        Lengths::new(lengths, width)
    }

    /// Builds the matrix `[b, t, k]` that gives each frame the values of its token: 1 at the token of a frame.
    pub(super) fn expansion(&self, tokens: usize, frames: usize, device: &Device) -> Tensor<3> {
        let shape = [self.frames.len(), frames, tokens];
        from_host(shape, device, || {
            let mut values = vec![0.0; shape.iter().product()];
            for (index, text) in self.frames.iter().enumerate() {
                for (frame, (token, _, _)) in each_frame(text).enumerate() {
                    values[(index * frames + frame) * tokens + token] = 1.0;
                }
            }
            values
        })
    }

    /// Builds the place `[b, t, 2]` of each frame within its token: from 0 at the begin of the token to 1 at its end, and the
    /// duration of the token.
    pub(super) fn places(&self, frames: usize, device: &Device) -> Tensor<3> {
        let shape = [self.frames.len(), frames, 2];
        from_host(shape, device, || {
            let mut values = vec![0.0; shape.iter().product()];
            for (index, text) in self.frames.iter().enumerate() {
                for (frame, (_, place, duration)) in each_frame(text).enumerate() {
                    let at = (index * frames + frame) * 2;
                    values[at] = (place as f32 + 0.5) / duration as f32;
                    values[at + 1] = duration as f32 / LONG_TOKEN;
                }
            }
            values
        })
    }

    /// Builds the logarithm of each duration, `[b, k]`; 0 in the padding and for a token without a frame.
    pub(super) fn logarithms(&self, tokens: usize, device: &Device) -> Tensor<2> {
        from_host([self.frames.len(), tokens], device, || {
            let row = |text: &Vec<u32>| {
                let logarithms = text.iter().map(|&frames| (frames.max(1) as f32).ln());
                logarithms.chain(std::iter::repeat(0.0)).take(tokens).collect::<Vec<f32>>()
            };
            self.frames.iter().flat_map(row).collect()
        })
    }
}

/// Lists the frames of a text: the token of each, the place within the token, and the token's duration.
fn each_frame(durations: &[u32]) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
    let frames = |(token, &duration): (usize, &u32)| (0..duration).map(move |place| (token, place, duration));
    durations.iter().enumerate().flat_map(frames)
}

/// Shares `frames` among `tokens` as evenly as whole numbers allow, the first tokens first.
fn evenly(tokens: u32, frames: u32) -> Vec<u32> {
    (0..tokens).map(|token| frames / tokens + u32::from(token < frames % tokens)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_get_the_values_and_places_of_their_token() {
        let durations = Durations { frames: vec![vec![2, 1], vec![1]], reads: 0 };
        let device = Device::flex();
        let values = |tensor: Tensor<3>| tensor.into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(durations.lengths().each(), [3, 1]);
        assert_eq!(values(durations.expansion(2, 3, &device)), [1., 0., 1., 0., 0., 1., 1., 0., 0., 0., 0., 0.]);
        let places = values(durations.places(3, &device));
        assert_eq!(places[..6], [0.25, 0.1, 0.75, 0.1, 0.5, 0.05]);
        let logarithms: Vec<f32> = durations.logarithms(2, &device).into_data().try_into_vec().unwrap();
        assert_eq!(logarithms, [2f32.ln(), 0.0, 0.0, 0.0]);
    }

    #[test]
    fn search_finds_the_tokens_of_frames_that_equal_their_prior() {
        let device = Device::flex();
        let prior = Tensor::<3>::from_data([[[1.0, 0.0], [0.0, 2.0]]], &device);
        let target = Tensor::<3>::from_data([[[1.0, 0.1], [0.9, 0.0], [0.1, 2.0], [0.0, 0.0]]], &device);
        let (tokens, frames) = (Lengths::new(vec![2], 2), Lengths::new(vec![3], 4));
        assert_eq!(Durations::search(prior.clone(), target.clone(), &tokens, &frames).frames, [[2, 1]]);
        // Fewer frames than tokens.
        let short = Durations::search(prior, target, &tokens, &Lengths::new(vec![1], 4));
        assert_eq!(short.frames, [[1, 0]]);
    }

    #[test]
    fn even_durations_share_all_frames() {
        assert_eq!(evenly(3, 8), [3, 3, 2]);
        assert_eq!(evenly(3, 2), [1, 1, 0]);
        assert!(evenly(0, 5).is_empty());
    }
}
