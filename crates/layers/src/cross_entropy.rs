//! Cross-entropy loss with label smoothing.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use plimsoll_tape::transfer::uploaded;

// Shapes: b batch, u tokens, v vocabulary.

/// Computes the cross-entropy `[1]` of `logits` `[b, u, v]`, before softmax, summed over all tokens of `targets`.
///
/// `smoothing` in `[0, 1)` is the part of each label that is spread evenly over the vocabulary (Szegedy et al. 2016).
/// Equals PyTorch's `CrossEntropyLoss(label_smoothing=smoothing, reduction="sum")`. A target may be shorter than `u`,
/// or empty: positions beyond its end add nothing. `logits` should be in fp32.
///
/// # Panics
/// If there are not `b` targets, or one is longer than `u`.
pub fn cross_entropy(logits: Tensor<3>, targets: &[Vec<u32>], smoothing: f64) -> Tensor<1> {
    let [b, u, v] = logits.dims();
    assert!(
        targets.len() == b && targets.iter().all(|t| t.len() <= u),
        "one target of at most {u} tokens for each of {b} sequences"
    );
    let device = logits.device();
    let padded =
        |target: &Vec<u32>| (0..u).map(|position| target.get(position).map_or(0, |&token| token as i32)).collect();
    let ids: Vec<i32> = targets.iter().flat_map(|target| -> Vec<i32> { padded(target) }).collect();
    let counted = targets.iter().flat_map(|target| (0..u).map(|position| f32::from(position < target.len()))).collect();
    let ids = Tensor::<3, Int>::from_data(uploaded(TensorData::new(ids, [b, u, 1])), &device);
    let counted = Tensor::<3>::from_data(uploaded(TensorData::new::<f32, _>(counted, [b, u, 1])), &device);
    let log_probs = log_softmax(logits, 2);
    let target_log_probs = log_probs.clone().gather(2, ids) * (1.0 - smoothing);
    let each = if smoothing > 0.0 {
        target_log_probs + log_probs.sum_dim(2) * (smoothing / v as f64)
    } else {
        target_log_probs
    };
    (each * counted).sum().neg()
}
