//! Durations: how many frames each token of a text lasts, found in training and predicted in generation.

use burn::tensor::{Device, Tensor};
use plimsoll_core::{TimeOwner, timing};
use plimsoll_layers::{Lengths, monotonic_alignment};
use plimsoll_tape::gpu::{FrameShares, share_frames};
use plimsoll_tape::transfer::{from_host, send_queued};
use plimsoll_tape::{detach, is_capture_device, runs_host_ops, without_autodiff};
use rayon::prelude::*;

// Shapes: b texts, k tokens, t frames, f features.

/// Number of frames by which the relative duration of a token is scaled: about the duration of a vowel.
pub(super) const LONG_TOKEN: f32 = 20.0;

/// The number of frames of each token, for all texts of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Durations {
    /// Frames of each token, for each text.
    pub(super) frames: Vec<Vec<u32>>,
}

/// The frames of a batch, shared among the tokens of its texts, as tensors.
#[derive(Clone, Debug)]
pub(super) struct SharedFrames {
    /// `[b, t, k]`, which gives each frame the values of its token: 1 at the token of a frame.
    pub(super) expansion: Tensor<3>,
    /// `[b, t, 2]`: the place of each frame within its token, from 0 at the begin of the token to 1 at its end, and the duration of the
    /// token.
    pub(super) places: Tensor<3>,
    /// `[b, k]`: the number of frames of each token, and 1 in the padding and for a token without a frame.
    durations: Tensor<2>,
    /// Number of reads from the device for which the search waited.
    pub(super) reads: u32,
}

impl SharedFrames {
    /// Finds the durations that fit best: `prior` `[b, k, f]` is the frame that each token expects, `target` `[b, t, f]` are
    /// the true frames. A text with more tokens than frames gets one frame for each of its first tokens.
    ///
    /// No gradient depends on the search. A GPU searches by itself, in fp32, so it may choose another of two alignments that are equally
    /// good but for rounding. Elsewhere the search runs on the CPU, the texts in parallel.
    pub(super) fn search(prior: Tensor<3>, target: Tensor<3>, tokens: &Lengths, frames: &Lengths) -> Self {
        let on = target.device();
        // The square of the true frame is the same for all tokens, so it is left out.
        if !runs_host_ops(&on) {
            let (prior, target) = (detach(prior.clone()), detach(target.clone()));
            let own = prior.clone().square().sum_dim(2).swap_dims(1, 2) * 0.5;
            let scores = target.matmul(prior.swap_dims(1, 2)) - own;
            let valid = |lengths: &Lengths| lengths.attention_mask(false);
            if let Some(found) = share_frames(scores, &valid(tokens), &valid(frames), LONG_TOKEN) {
                let FrameShares { expansion, places, durations } = found;
                let durations = durations.clamp_min(1.0);
                // Burn fuses what follows by itself, and leaves some of it alone beside this.
                send_queued(&on);
                return Self { expansion, places, durations, reads: 0 };
            }
        }
        let (durations, reads) = Durations::search(without_autodiff(prior), without_autodiff(target), tokens, frames);
        Self { reads, ..durations.shared(tokens.width(), frames.width(), &on) }
    }

    /// Returns the logarithm of each duration, `[b, k]`; 0 in the padding and for a token without a frame.
    pub(super) fn logarithms(&self) -> Tensor<2> {
        self.durations.clone().log()
    }

    /// Returns the share `[b, k, 1]` of one frame in its token: 1 by the duration.
    pub(super) fn shares(&self) -> Tensor<3> {
        self.durations.clone().recip().unsqueeze_dim(2)
    }

    /// Reads the number of frames of each token, for texts of `tokens`.
    pub(super) fn durations(&self, tokens: &Lengths) -> Vec<Vec<u32>> {
        let counts = without_autodiff(self.expansion.clone()).sum_dim(1).into_data().convert::<u32>();
        let counts: Vec<u32> = counts.try_into_vec().expect("converted to u32");
        let rows = counts.chunks(tokens.width().max(1)).zip(tokens.each());
        rows.map(|(row, &tokens)| row[..tokens as usize].to_vec()).collect()
    }
}

impl Durations {
    /// Searches on the host. Returns the number of reads from the device for which the search waited, too.
    fn search(prior: Tensor<3>, target: Tensor<3>, tokens: &Lengths, frames: &Lengths) -> (Self, u32) {
        let device = prior.device();
        let reads = u32::from(!runs_host_ops(&device));
        let sizes = tokens.each().iter().zip(frames.each());
        let own = prior.clone().square().sum_dim(2) * 0.5;
        let scores = prior.matmul(target.swap_dims(1, 2)) - own;
        if is_capture_device(&device) {
            return (Self { frames: sizes.map(|(&tokens, &frames)| evenly(tokens, frames)).collect() }, reads);
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
        (Self { frames: sizes.into_par_iter().map(search).collect() }, reads)
    }

    /// Makes the tensors of these durations, for texts of `tokens` and utterances of `frames`, both padded.
    pub(super) fn shared(&self, tokens: usize, frames: usize, device: &Device) -> SharedFrames {
        SharedFrames {
            expansion: self.expansion(tokens, frames, device),
            places: self.places(frames, device),
            durations: self.durations(tokens, device),
            reads: 0,
        }
    }

    /// Returns the number of frames of each text, padded to the longest.
    pub(super) fn lengths(&self) -> Lengths {
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

    /// Builds the number of frames of each token, `[b, k]`; 1 in the padding and for a token without a frame.
    fn durations(&self, tokens: usize, device: &Device) -> Tensor<2> {
        from_host([self.frames.len(), tokens], device, || {
            let row = |text: &Vec<u32>| {
                let frames = text.iter().map(|&frames| frames.max(1) as f32);
                frames.chain(std::iter::repeat(1.0)).take(tokens).collect::<Vec<f32>>()
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
        let durations = Durations { frames: vec![vec![2, 1], vec![1]] };
        let device = Device::flex();
        let values = |tensor: Tensor<3>| tensor.into_data().try_into_vec::<f32>().unwrap();
        assert_eq!(durations.lengths().each(), [3, 1]);
        let shared = durations.shared(2, 3, &device);
        assert_eq!(values(shared.expansion.clone()), [1., 0., 1., 0., 0., 1., 1., 0., 0., 0., 0., 0.]);
        assert_eq!(values(shared.places.clone())[..6], [0.25, 0.1, 0.75, 0.1, 0.5, 0.05]);
        assert_eq!(values(shared.shares()), [0.5, 1.0, 1.0, 1.0]);
        let logarithms: Vec<f32> = shared.logarithms().into_data().try_into_vec().unwrap();
        assert_eq!(logarithms, [2f32.ln(), 0.0, 0.0, 0.0]);
    }

    #[test]
    fn search_finds_the_tokens_of_frames_that_equal_their_prior() {
        let device = Device::flex();
        let prior = Tensor::<3>::from_data([[[1.0, 0.0], [0.0, 2.0]]], &device);
        let target = Tensor::<3>::from_data([[[1.0, 0.1], [0.9, 0.0], [0.1, 2.0], [0.0, 0.0]]], &device);
        let (tokens, frames) = (Lengths::new(vec![2], 2), Lengths::new(vec![3], 4));
        let found = SharedFrames::search(prior.clone(), target.clone(), &tokens, &frames);
        assert_eq!(found.durations(&tokens), [[2, 1]]);
        // Fewer frames than tokens.
        let short = SharedFrames::search(prior, target, &tokens, &Lengths::new(vec![1], 4));
        assert_eq!(short.durations(&tokens), [[1, 0]]);
    }

    #[test]
    fn even_durations_share_all_frames() {
        assert_eq!(evenly(3, 8), [3, 3, 2]);
        assert_eq!(evenly(3, 2), [1, 1, 0]);
        assert!(evenly(0, 5).is_empty());
    }
}
