//! Stochastic gradient descent with PyTorch's definition and defaults.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::blocks::Range;
use super::rule::{StatePart, StepSize, Updated};

/// The numbers of `torch.optim.SGD`, whose dampening is left at its zero.
///
/// As there, the decay is no decay of its own but a part of the gradient, and so of the momentum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SgdConfig {
    /// How much of the last step's direction stays in this one. At zero nothing is remembered.
    pub momentum: f64,
    /// Whether the gradient is looked at from where the momentum leads (Nesterov's); nothing without momentum.
    pub nesterov: bool,
    /// How much of every weight is added to its gradient.
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

    /// The same in 64 bits, written from PyTorch's documentation.
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
