//! Stochastic gradient descent with PyTorch's definition and defaults.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::blocks::Range;
use super::rule::{StatePart, StepSize, Updated};

/// Hyperparameters of `torch.optim.SGD` without dampening. Defaults: all zero or false.
///
/// As in PyTorch, weight decay is a part of the gradient, and so of the momentum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SgdConfig {
    /// Share of the previous step's direction that is kept in the next step. At 0 no state is kept.
    pub momentum: f64,
    /// Whether to use Nesterov momentum. Has no effect if `momentum` is 0.
    pub nesterov: bool,
    /// Share of every weight that is added to its gradient.
    pub weight_decay: f64,
}

impl SgdConfig {
    const PARTS: [StatePart; 1] = [StatePart { name: "momentum", range: Range::Signed }];

    pub(super) fn parts(&self) -> &'static [StatePart] {
        if self.momentum == 0.0 { &[] } else { &Self::PARTS }
    }

    pub(super) fn update(
        &self,
        step_size: StepSize,
        value: Tensor<1>,
        gradient: Tensor<1>,
        old: Vec<Tensor<1>>,
    ) -> Updated {
        let Self { momentum, nesterov, weight_decay } = *self;
        let gradient = if weight_decay == 0.0 { gradient } else { gradient + value.clone() * weight_decay };
        if momentum == 0.0 {
            return (value - gradient * step_size.rate, Vec::new());
        }
        let mean = match old.into_iter().next() {
            Some(old) => old * momentum + gradient.clone(),
            None => gradient.clone(),
        };
        let toward = if nesterov { gradient + mean.clone() * momentum } else { mean.clone() };
        (value - toward * step_size.rate, vec![mean])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::tests::check_definition;

    /// Returns a function that computes the weight after steps with given gradients in 64 bits, by the definition in
    /// PyTorch's documentation.
    fn by_hand(config: SgdConfig) -> impl Fn(f64, &[f64]) -> f64 {
        move |mut x, gradients| {
            let mut mean = None;
            for gradient in gradients {
                let gradient = gradient + config.weight_decay * x;
                let new = mean.map_or(gradient, |mean: f64| config.momentum * mean + gradient);
                mean = Some(new);
                x -= 0.1 * if config.nesterov { gradient + config.momentum * new } else { new };
            }
            x
        }
    }

    #[test]
    fn steps_match_the_definition() {
        for (momentum, nesterov, weight_decay) in
            [(0.0, false, 0.0), (0.0, false, 0.2), (0.9, false, 0.2), (0.9, true, 0.0), (0.5, true, 0.2)]
        {
            let config = SgdConfig { momentum, nesterov, weight_decay };
            check_definition(config, by_hand(config));
        }
    }
}
