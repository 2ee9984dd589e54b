//! Types that every optimizer rule shares.

use burn::tensor::Tensor;

use super::blocks::Range;

/// A running mean that a rule keeps for each parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatePart {
    /// Suffix of its name in a checkpoint, after the parameter's name.
    pub(super) name: &'static str,
    /// Range of its values.
    pub(super) range: Range,
}

/// Learning rate and number of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    /// Learning rate.
    pub(super) rate: f64,
    /// Number of the step; the first is 1.
    pub(super) step: u64,
}

/// Updated value, and its running means in the order of the rule's parts.
pub(super) type Updated = (Tensor<1>, Vec<Tensor<1>>);
