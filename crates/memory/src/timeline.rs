//! The memory of a step over time: every allocation with its owner, its first moment and its last.

use plimsoll_core::Bytes;
use serde::Serialize;

/// The part of training that an allocation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// Parameters, and buffers of the model such as running statistics.
    Weights,
    /// Gradients of the parameters, which accumulate over a step.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// Tensors that the forward pass saves for the backward pass.
    Activations,
    /// Tensors that are created and freed within one pass.
    Temporaries,
    /// The batch that is computed.
    Batch,
    /// Batches that were sent to the device ahead of their step.
    Prefetch,
    /// Memory of libraries and the driver: workspaces, contexts, kernels.
    Workspace,
}

/// What the run does at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Computes the loss.
    Forward,
    /// Computes the gradients, rematerialization included.
    Backward,
    /// Updates the parameters.
    Optimizer,
    /// Evaluates a batch without gradients.
    Validation,
    /// Transcribes or synthesizes with the model.
    Decoding,
    /// Copies the state to save it.
    Checkpoint,
}

/// A block of memory with its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Allocation {
    /// Its size.
    pub size: Bytes,
    /// The first moment at which it exists.
    pub birth: usize,
    /// The first moment at which it no longer exists.
    pub death: usize,
    /// What it belongs to.
    pub owner: Owner,
    /// The phase in which it was allocated.
    pub phase: Phase,
    /// The operation that allocated it.
    pub made_by: &'static str,
}

/// A phase with its moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseSpan {
    /// The phase.
    pub phase: Phase,
    /// Its first moment.
    pub start: usize,
    /// The first moment after it.
    pub end: usize,
}

/// The memory of a step over time, in moments counted from 0. A moment is one operation, or one allocation within an
/// operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Every allocation, in the order of birth.
    pub allocations: Vec<Allocation>,
    /// Every phase, in order. A phase may occur several times.
    pub phases: Vec<PhaseSpan>,
    /// The number of moments.
    pub moments: usize,
}
