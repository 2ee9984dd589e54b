//! Types that every optimizer rule shares.

use burn::tensor::Tensor;

use super::blocks::Range;

/// One of the running means that a rule remembers of each parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatePart {
    /// What it is called in a checkpoint, after the parameter's name.
    pub(super) name: &'static str,
    /// Which values it takes.
    pub(super) range: Range,
}

/// How far a step goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSize {
    /// The learning rate.
    pub(super) rate: f64,
    /// The step's number, the first being 1.
    pub(super) step: u64,
}

/// A moved value, and what is remembered of it in the order of the rule's parts.
pub(super) type Updated = (Tensor<1>, Vec<Tensor<1>>);
