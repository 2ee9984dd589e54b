//! Losses of a synthesizer: distance of predicted frames from true frames, and prediction of the last step.

use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Device, Tensor};
use plimsoll_tape::transfer::from_host;

use crate::Lengths;

// Shapes: b batch, t frames, f features, u decoder steps.

/// Distance between a predicted and a true feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Distance {
    /// L1 distance: the absolute difference.
    #[default]
    L1,
    /// Huber loss with delta 1 (Huber 1964): `e² / 2` for differences `e` below 1, `|e| - 1/2` above.
    Huber,
}

/// Computes the distance `[1]` of predicted frames `found` from `truth`, both `[b, t, f]`: the mean over features,
/// summed over valid frames.
///
/// Equals PyTorch's `L1Loss` or `HuberLoss` over the valid frames, times the number of valid frames.
pub fn mel_distance(found: Tensor<3>, truth: Tensor<3>, lengths: &Lengths, distance: Distance) -> Tensor<1> {
    let [_, _, f] = found.dims();
    let error = lengths.clear_padding(found - truth).abs();
    let each = match distance {
        Distance::L1 => error,
        Distance::Huber => {
            // With m = min(|e|, 1), both cases are m (|e| - m / 2).
            let clamped = error.clone().clamp_max(1.0);
            (error - clamped.clone() * 0.5) * clamped
        }
    };
    each.sum() / f as f64
}

/// Computes the binary cross-entropy `[1]` of the stop prediction `logits` `[b, u]`, before the sigmoid, summed over
/// all valid `steps`.
///
/// The target is 1 at the last valid step of each sequence and 0 before this step. Equals PyTorch's
/// `BCEWithLogitsLoss(pos_weight=weight, reduction="sum")` over the valid steps.
pub fn stop_loss(logits: Tensor<2>, steps: &Lengths, weight: f64) -> Tensor<1> {
    let device = logits.device();
    let [last, before] = [true, false].map(|last| step_mask(steps, last, &device));
    let positive = log_sigmoid(logits.clone()) * last * weight;
    let negative = log_sigmoid(logits.neg()) * before;
    (positive + negative).sum().neg()
}

/// Builds a mask `[b, u]`: 1 at the last valid step of each sequence (`last`), or at all valid steps before the last
/// valid step.
fn step_mask(steps: &Lengths, last: bool, device: &Device) -> Tensor<2> {
    let (b, u) = (steps.each().len(), steps.width());
    let mark = |length: u32| (0..u as u32).map(move |step| f32::from(step < length && (step + 1 == length) == last));
    from_host([b, u], device, || steps.each().iter().flat_map(|&length| mark(length)).collect())
}
