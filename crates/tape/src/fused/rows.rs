//! A row of attention scores on the CPU: its softmax, its dropout, and its gradient.

use crate::noise::random_bits;
use crate::simd::{self, exp, sum};

/// Sets the values of a row that dropout drops to zero, and multiplies the others by `scale`. `key` is the random-number key of the row.
#[inline(always)]
pub(super) fn drop_values(values: &mut [f32], key: [u32; 2], threshold: u32, scale: f32) {
    for (index, value) in values.iter_mut().enumerate() {
        *value = if random_bits(key, index as u32) < threshold { 0.0 } else { *value * scale };
    }
}

/// Replaces the gradient of a row of weights by that of its scores. `dropped` has the arguments of [`drop_values`], if dropout made the weights.
#[inline(always)]
pub(super) fn row_gradient(softmax: &[f32], gradient: &mut [f32], dropped: Option<([u32; 2], u32, f32)>) {
    if let Some((key, threshold, scale)) = dropped {
        drop_values(gradient, key, threshold, scale);
    }
    let along = sum(gradient.iter().zip(softmax).map(|(g, p)| g * p));
    gradient.iter_mut().zip(softmax).for_each(|(g, p)| *g = simd::gradient(p * (*g - along)));
}

/// Difference from the highest score below which a key has no weight: `exp(-30)` is 1e-13, which changes no sum of fp32.
const NO_WEIGHT: f32 = -30.0;

/// Computes the weight of a score before the division by the sum, from its difference to the highest. Small weights are zero: products
/// with them would be denormal numbers, with which a processor multiplies many times slower.
#[inline(always)]
pub(super) fn weight(difference: f32) -> f32 {
    if difference < NO_WEIGHT { 0.0 } else { exp(difference) }
}

/// Replaces the scores of a row by their softmax.
#[inline(always)]
pub(super) fn softmax_in_place(scores: &mut [f32]) {
    let mut highest = [f32::NEG_INFINITY; 16];
    for (index, &score) in scores.iter().enumerate() {
        highest[index % 16] = if score > highest[index % 16] { score } else { highest[index % 16] };
    }
    let highest = highest.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = weight(*score - highest));
    let inverse = 1.0 / sum(scores.iter().copied());
    scores.iter_mut().for_each(|score| *score *= inverse);
}
