//! Choice of an optimizer rule, and the cost of its state.

use burn::tensor::Tensor;
use plimsoll_core::{Bytes, StateForm};
use serde::{Deserialize, Serialize};

use super::adamw::AdamWConfig;
use super::blocks;
use super::lion::LionConfig;
use super::rule::{StatePart, StepSize, Updated};
use super::sgd::SgdConfig;

/// Optimizer rule with its hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OptimizerConfig {
    /// AdamW: an adaptive step for each value; two running means.
    #[serde(rename = "adamw")]
    AdamW(AdamWConfig),
    /// Lion: a step of the same size for every value; one running mean.
    Lion(LionConfig),
    /// Stochastic gradient descent, with or without momentum.
    Sgd(SgdConfig),
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::AdamW(AdamWConfig::default())
    }
}

impl From<AdamWConfig> for OptimizerConfig {
    fn from(config: AdamWConfig) -> Self {
        Self::AdamW(config)
    }
}

impl From<LionConfig> for OptimizerConfig {
    fn from(config: LionConfig) -> Self {
        Self::Lion(config)
    }
}

impl From<SgdConfig> for OptimizerConfig {
    fn from(config: SgdConfig) -> Self {
        Self::Sgd(config)
    }
}

impl OptimizerConfig {
    /// Computes the bytes of optimizer state on the device between steps, for a parameter with `values` values.
    pub fn state_bytes(&self, form: StateForm, values: u64) -> Bytes {
        let each = match form {
            StateForm::Full => values * 4,
            StateForm::Eight => blocks::bytes(values),
            StateForm::Host => 0,
        };
        Bytes(each * self.parts().len() as u64)
    }

    /// Computes the bits of optimizer state on the device for each parameter value, rounded up. The state in 8 bits of
    /// parameters below 1024 values takes more.
    pub fn state_bits(&self, form: StateForm) -> u64 {
        let many = 1 << 20;
        (self.state_bytes(form, many).0 * 8).div_ceil(many)
    }

    /// Lists the running means that the rule keeps for each parameter.
    pub(super) fn parts(&self) -> &'static [StatePart] {
        match self {
            Self::AdamW(_) => &AdamWConfig::PARTS,
            Self::Lion(_) => &LionConfig::PARTS,
            Self::Sgd(sgd) => sgd.parts(),
        }
    }

    /// Updates `value` by `gradient`, and returns it with the new running means. `old` holds the running means of the
    /// last step, or is empty at the first gradient.
    pub(super) fn update(
        &self,
        step_size: StepSize,
        value: Tensor<1>,
        gradient: Tensor<1>,
        old: Vec<Tensor<1>>,
    ) -> Updated {
        match self {
            Self::AdamW(adam) => adam.update(step_size, value, gradient, old),
            Self::Lion(lion) => lion.update(step_size, value, gradient, old),
            Self::Sgd(sgd) => sgd.update(step_size, value, gradient, old),
        }
    }
}
