//! Lion: steps by the sign of a momentum.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::blocks::Range;
use super::rule::{StatePart, StepSize, Updated};

/// Hyperparameters of Lion (Chen et al. 2023, arXiv 2302.06675), with the defaults of its authors' code.
///
/// Every value changes by the full learning rate. So the authors use a rate 3 to 10 times smaller than for AdamW, and
/// a weight decay larger by the same factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LionConfig {
    /// Share of the running mean in the direction of a step. Default: 0.9.
    pub beta_1: f64,
    /// Decay of the running mean of the gradient. Default: 0.99.
    pub beta_2: f64,
    /// Weight decay: a step multiplies each weight by 1 minus the learning rate times this number. Default: 0.
    pub weight_decay: f64,
}

impl Default for LionConfig {
    fn default() -> Self {
        Self { beta_1: 0.9, beta_2: 0.99, weight_decay: 0.0 }
    }
}

impl LionConfig {
    pub(super) const PARTS: [StatePart; 1] = [StatePart { name: "mean", range: Range::Signed }];

    pub(super) fn update(
        &self,
        step_size: StepSize,
        value: Tensor<1>,
        gradient: Tensor<1>,
        old: Vec<Tensor<1>>,
    ) -> Updated {
        let Self { beta_1, beta_2, weight_decay } = *self;
        let (toward, mean) = match old.into_iter().next() {
            Some(old) => {
                let toward = old.clone() * beta_1 + gradient.clone() * (1.0 - beta_1);
                (toward, old * beta_2 + gradient * (1.0 - beta_2))
            }
            None => (gradient.clone(), gradient * (1.0 - beta_2)),
        };
        let moved = value * (1.0 - step_size.rate * weight_decay) - toward.sign() * step_size.rate;
        (moved, vec![mean])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::tests::check_definition;

    /// Computes the weight after steps with `gradients` in 64 bits, by the second algorithm of the paper.
    fn by_hand(mut x: f64, gradients: &[f64]) -> f64 {
        let mut mean = 0.0;
        for gradient in gradients {
            let toward: f64 = 0.9 * mean + 0.1 * gradient;
            x -= 0.1 * (toward.signum() + 0.3 * x);
            mean = 0.99 * mean + 0.01 * gradient;
        }
        x
    }

    #[test]
    fn steps_match_the_definition() {
        check_definition(LionConfig { weight_decay: 0.3, ..LionConfig::default() }, by_hand);
    }
}
