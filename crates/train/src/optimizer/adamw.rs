//! AdamW with PyTorch's definition and defaults.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::blocks::Range;
use super::rule::{StatePart, StepSize, Updated};

/// Hyperparameters of AdamW (Loshchilov and Hutter 2019), with PyTorch's defaults, which differ from Burn's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamWConfig {
    /// Decay of the running mean of the gradient. Default: 0.9.
    pub beta_1: f64,
    /// Decay of the running mean of the squared gradient. Default: 0.999.
    pub beta_2: f64,
    /// Number added to the denominator of a step, so that it is never zero. Default: 1e-8.
    pub epsilon: f64,
    /// Weight decay: a step multiplies each weight by 1 minus the learning rate times this number. Default: 0.01.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: 1e-2 }
    }
}

impl AdamWConfig {
    pub(super) const PARTS: [StatePart; 2] =
        [StatePart { name: "mean", range: Range::Signed }, StatePart { name: "square", range: Range::Positive }];

    pub(super) fn update(
        &self,
        step_size: StepSize,
        value: Tensor<1>,
        gradient: Tensor<1>,
        old: Vec<Tensor<1>>,
    ) -> Updated {
        let Self { beta_1, beta_2, epsilon, weight_decay } = *self;
        let mut square = gradient.clone().square() * (1.0 - beta_2);
        let mut mean = gradient * (1.0 - beta_1);
        if let Ok([old_mean, old_square]) = <[Tensor<1>; 2]>::try_from(old) {
            mean = old_mean * beta_1 + mean;
            square = old_square * beta_2 + square;
        }
        let steps = step_size.step as i32;
        let (first, second) = (1.0 - beta_1.powi(steps), 1.0 - beta_2.powi(steps));
        let root = (square.clone() / second).sqrt() + epsilon;
        let delta = mean.clone() / root * (step_size.rate / first);
        (value * (1.0 - step_size.rate * weight_decay) - delta, vec![mean, square])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::tests::check_definition;

    /// Computes the weight after steps with `gradients` in 64 bits, by the definition in PyTorch's documentation.
    fn by_hand(mut x: f64, gradients: &[f64]) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        for (step, gradient) in (1..).zip(gradients) {
            x -= 0.1 * 1e-2 * x;
            mean = 0.9 * mean + 0.1 * gradient;
            square = 0.999 * square + 0.001 * gradient * gradient;
            let (first, second): (f64, f64) = (1.0 - 0.9f64.powi(step), 1.0 - 0.999f64.powi(step));
            x -= 0.1 * (mean / first) / ((square / second).sqrt() + 1e-8);
        }
        x
    }

    #[test]
    fn steps_match_the_definition() {
        check_definition(AdamWConfig::default(), by_hand);
    }
}
