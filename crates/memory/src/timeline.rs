//! What a step has in memory, from moment to moment: every allocation with its owner, its birth and its death.

use plimsoll_core::Bytes;
use serde::Serialize;

/// Whose an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The parameters, and what the model keeps beside them.
    Weights,
    /// The gradients of the parameters, as they gather over a step.
    Gradients,
    /// What the optimizer keeps for each parameter.
    Optimizer,
    /// What the forward pass leaves for the backward pass.
    Activations,
    /// What is made and used up inside a pass.
    Temporaries,
    /// The batch that is computed.
    Batch,
    /// Batches that wait on the device.
    Prefetch,
    /// What a library or the driver takes for itself: workspaces, contexts, kernels.
    Workspace,
}

/// What is being done at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The loss is computed.
    Forward,
    /// The gradients are computed, second passes included.
    Backward,
    /// The parameters move.
    Optimizer,
    /// A batch is judged without gradients.
    Validation,
    /// Something is read or spoken with the model.
    Decoding,
    /// The state is copied out to be saved.
    Checkpoint,
}

/// One stretch of memory, from its birth to its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Allocation {
    /// How much.
    pub size: Bytes,
    /// The moment from which it is there.
    pub birth: usize,
    /// The first moment at which it is gone.
    pub death: usize,
    /// Whose it is.
    pub owner: Owner,
    /// What was being done when it was made.
    pub phase: Phase,
    /// The operation that made it.
    pub made_by: &'static str,
}

/// A stretch of moments in which one thing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseSpan {
    /// What is done.
    pub phase: Phase,
    /// The first moment.
    pub start: usize,
    /// The first moment after it.
    pub end: usize,
}

/// The memory of a step. A moment is one operation, or one allocation inside an operation; they are counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Everything that was allocated, in the order of birth.
    pub allocations: Vec<Allocation>,
    /// What was done when, in order.
    pub phases: Vec<PhaseSpan>,
    /// The number of moments.
    pub moments: usize,
}
