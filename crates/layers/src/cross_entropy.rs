//! Cross-entropy with smoothed labels.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};

// Shapes: b batch, u tokens, v vocabulary.

/// The sum over all tokens of `targets` of how surprising they are under `logits` `[b, u, v]`, before any softmax.
///
/// With `smoothing`, that share of each label is spread evenly over the vocabulary (Szegedy et al. 2016), as PyTorch's
/// `label_smoothing` does. Sequences may be shorter than `u`; what lies beyond them counts for nothing, and so does a
/// whole sequence that is empty. `logits` should be in fp32.
///
/// # Panics
/// Where a sequence is longer than `u`, or there are not `b` of them.
pub fn cross_entropy(logits: Tensor<3>, targets: &[Vec<u32>], smoothing: f64) -> Tensor<1> {
    let [b, u, v] = logits.dims();
    assert!(targets.len() == b && targets.iter().all(|t| t.len() <= u), "one sequence that fits for each sample");
    let device = logits.device();
    let padded = |target: &Vec<u32>| (0..u).map(|place| target.get(place).map_or(0, |&token| token as i32)).collect();
    let ids: Vec<i32> = targets.iter().flat_map(|target| -> Vec<i32> { padded(target) }).collect();
    let counted = targets.iter().flat_map(|target| (0..u).map(|place| f32::from(place < target.len()))).collect();
    let ids = Tensor::<3, Int>::from_data(TensorData::new(ids, [b, u, 1]), &device);
    let counted = Tensor::<3>::from_data(TensorData::new::<f32, _>(counted, [b, u, 1]), &device);
    let log_probs = log_softmax(logits, 2);
    let said = log_probs.clone().gather(2, ids) * (1.0 - smoothing);
    let all = if smoothing > 0.0 { said + log_probs.sum_dim(2) * (smoothing / v as f64) } else { said };
    (all * counted).sum().neg()
}
