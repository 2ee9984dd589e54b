//! Types that every optimizer rule shares.

use burn::tensor::Tensor;

use super::blocks::Range;

/// Description of a running mean that an optimizer rule, such as AdamW, keeps for each parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatePart {
    /// Name of this running mean in a checkpoint: it follows the name of the parameter.
    pub(super) name: &'static str,
    /// Range of the values of the running mean.
    pub(super) range: Range,
}

/// What an optimizer rule knows of the current step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    /// Learning rate of the step.
    pub(super) rate: f64,
    /// Number of updates that the optimizer has made, this one included. AdamW corrects its running means by it.
    pub(super) step: u64,
}

impl StepSize {
    /// Returns the step size of a part whose learning rate has a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { rate: self.rate * factor, ..self }
    }
}

/// Updated value of a parameter, and its new running means in the order in which the rule lists them.
pub(super) type Updated = (Tensor<1>, Vec<Tensor<1>>);
