//! Monotonic alignment on a GPU: the best way to share frames among tokens, in order.

use burn::tensor::{DType, FloatDType, Tensor};

use super::AttentionMask;
use crate::bridge::{PrimitiveBackend, without_autodiff};
use crate::kernels::{KernelBackend, MOST_TOKENS, on_kernels};

// Shapes: b utterances, k tokens, t frames.

/// The frames of utterances, shared among the tokens of their texts.
#[derive(Clone, Debug)]
pub struct FrameShares {
    /// `[b, t, k]`: 1 at the token of a frame, and 0 elsewhere.
    pub expansion: Tensor<3>,
    /// `[b, t, 2]`: the place of a frame in its token, from 0 at the begin to 1 at the end, and the number of frames of the token by the
    /// unit. Both are 0 in the padding.
    pub places: Tensor<3>,
    /// `[b, k]`: the number of frames of each token.
    pub durations: Tensor<2>,
}

/// Shares frames among tokens, in order and at least one for each, so that the sum of the `scores` `[b, t, k]` of the chosen tokens is
/// largest (Kim et al. 2020, Glow-TTS). `tokens` and `frames` have the number of valid ones of each utterance. Where there are fewer frames than
/// tokens, each of the first tokens gets one. `unit` is the number of frames that counts as 1 in the places. No gradient reaches the scores;
/// the results have autodiff if the scores have it.
///
/// Nothing is read from the device. `None` where this has no kernel: on the CPU, and for texts of more than two thousand tokens.
pub fn share_frames(
    scores: Tensor<3>,
    tokens: &AttentionMask,
    frames: &AttentionMask,
    unit: f32,
) -> Option<FrameShares> {
    let [b, t, k] = scores.dims();
    if k > MOST_TOKENS || b * t * k == 0 {
        return None;
    }
    let is_autodiff = scores.is_autodiff();
    let scores = without_autodiff(scores);
    let scores = if scores.dtype() == DType::F32 { scores } else { scores.cast(FloatDType::F32) };
    let device = scores.device();
    on_kernels!(
        &device,
        B => {
            let (tokens, frames) = (B::plain_ints(tokens.lengths(&device)), B::plain_ints(frames.lengths(&device)));
            let [expansion, places, durations] = B::share_frames(B::plain(scores), tokens, frames, unit);
            Some(match is_autodiff {
                true => FrameShares {
                    expansion: B::constant(expansion),
                    places: B::constant(places),
                    durations: B::constant(durations),
                },
                false => FrameShares {
                    expansion: B::from_plain(expansion),
                    places: B::from_plain(places),
                    durations: B::from_plain(durations),
                },
            })
        },
        otherwise None
    )
}
