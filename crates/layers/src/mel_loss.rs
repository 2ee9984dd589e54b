//! The losses of a synthesiser: how far its frames are from the true ones, and whether it stops where they do.

use burn::tensor::activation::log_sigmoid;
use burn::tensor::{Device, Tensor, TensorData};

use crate::Lengths;

// Shapes: b batch, t frames, f features, u steps.

/// How the distance of two numbers is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// The absolute difference.
    #[default]
    L1,
    /// Half its square below one, and half less than itself above (Huber 1964).
    Huber,
}

/// The sum over all valid frames of `[b, t, f]` of the mean distance of their features.
pub fn mel_distance(found: Tensor<3>, truth: Tensor<3>, lengths: &Lengths, distance: Distance) -> Tensor<1> {
    let [_, _, f] = found.dims();
    let apart = lengths.clear_padding(found - truth).abs();
    let each = match distance {
        Distance::L1 => apart,
        Distance::Huber => {
            // With m the smaller of |e| and 1, both branches are m (|e| - m / 2).
            let below = apart.clone().clamp_max(1.0);
            (apart - below.clone() * 0.5) * below
        }
    };
    each.sum() / f as f64
}

/// The sum over all valid steps of `logits` `[b, u]` of the binary cross-entropy of stopping: at the last valid step of
/// each sequence, which weighs `weight` times as much as one that goes on.
pub fn stop_loss(logits: Tensor<2>, steps: &Lengths, weight: f64) -> Tensor<1> {
    let device = logits.device();
    let [stops, goes_on] = [true, false].map(|last| marked(steps, last, &device));
    let stopped = log_sigmoid(logits.clone()) * stops * weight;
    let went_on = log_sigmoid(logits.neg()) * goes_on;
    (stopped + went_on).sum().neg()
}

/// One at the last valid step of each sequence, or at all that come before it.
fn marked(steps: &Lengths, last: bool, device: &Device) -> Tensor<2> {
    let (b, u) = (steps.each().len(), steps.width());
    let mark = |length: u32| (0..u as u32).map(move |step| f32::from(step < length && (step + 1 == length) == last));
    let values: Vec<f32> = steps.each().iter().flat_map(|&length| mark(length)).collect();
    Tensor::from_data(TensorData::new(values, [b, u]), device)
}
