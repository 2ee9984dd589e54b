//! Which optimizer, with its numbers, and what its state costs.

use burn::tensor::Tensor;
use plimsoll_core::Bytes;
use serde::{Deserialize, Serialize};

use super::adamw::AdamWConfig;
use super::blocks;
use super::lion::LionConfig;
use super::rule::{StatePart, StepSize, Updated};
use super::sgd::SgdConfig;

/// Which optimizer, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum OptimizerConfig {
    /// AdamW: each value at a speed of its own.
    #[serde(rename = "adamw")]
    AdamW(AdamWConfig),
    /// Lion: every value at the same speed, with half the state.
    Lion(LionConfig),
    /// Stochastic gradient descent, with momentum or without.
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

/// Where and in what numbers an optimizer keeps its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateForm {
    /// In fp32, on the device.
    #[default]
    Full,
    /// In 8 bits, in blocks that have a scale each, on the device; small parameters stay in fp32.
    Eight,
    /// In fp32 in host memory, fetched for each parameter when it is moved. On the CPU it is as much memory as `Full`.
    Host,
}

impl OptimizerConfig {
    /// Bytes of state that lie on the device between steps, for a parameter of `values` values.
    pub fn state_bytes(&self, form: StateForm, values: u64) -> Bytes {
        let each = match form {
            StateForm::Full => values * 4,
            StateForm::Eight => blocks::bytes(values),
            StateForm::Host => 0,
        };
        Bytes(each * self.parts().len() as u64)
    }

    /// Bits of state on the device for each value of a large parameter, rounded up.
    pub fn state_bits(&self, form: StateForm) -> u64 {
        let many = 1 << 20;
        (self.state_bytes(form, many).0 * 8).div_ceil(many)
    }

    /// What the rule remembers of each parameter.
    pub(super) fn parts(&self) -> &'static [StatePart] {
        match self {
            Self::AdamW(_) => &AdamWConfig::PARTS,
            Self::Lion(_) => &LionConfig::PARTS,
            Self::Sgd(sgd) => sgd.parts(),
        }
    }

    /// Moves `value` against `gradient`; `old` is what was remembered, nothing at the first gradient.
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
