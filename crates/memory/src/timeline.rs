//! The memory of a step over time: every allocation with its owner, its first moment and its last moment.

use plimsoll_core::Bytes;
use serde::Serialize;

/// Part of training to which an allocation belongs.
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
    /// The batch that the step computes.
    Batch,
    /// Batches that were sent to the device ahead of their step.
    Prefetch,
    /// Memory of libraries and the driver: workspaces, contexts, kernels.
    Workspace,
}

/// Phase of a run, such as the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The forward pass, which computes the loss.
    Forward,
    /// The backward pass, which computes the gradients, rematerialization included.
    Backward,
    /// The update of the parameters by the optimizer.
    Optimizer,
    /// The evaluation of a batch without gradients.
    Validation,
    /// The use of the model to transcribe or synthesize.
    Decoding,
    /// The copy of the state that a checkpoint saves.
    Checkpoint,
}

/// A block of memory with its lifetime, owner and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Allocation {
    /// Size of the block of memory.
    pub size: Bytes,
    /// The first moment at which the block exists.
    pub birth: usize,
    /// The first moment at which the block no longer exists.
    pub death: usize,
    /// Part of training to which the block belongs.
    pub owner: Owner,
    /// The phase in which the block was allocated.
    pub phase: Phase,
    /// Name of the operation that allocated the block.
    pub made_by: &'static str,
}

/// A phase with its range of moments in a [`Timeline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseSpan {
    /// Phase that the run is in from `start` to `end`.
    pub phase: Phase,
    /// The first moment of the phase.
    pub start: usize,
    /// The first moment after the phase.
    pub end: usize,
}

/// The memory of a step over time. Time is counted in moments, from 0: each allocation begins a new moment. Memory that
/// is freed no longer exists from the next moment on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// Every allocation of the step, in the order of birth.
    pub allocations: Vec<Allocation>,
    /// Every phase of the step, in order. A phase may occur several times.
    pub phases: Vec<PhaseSpan>,
    /// Number of moments of the timeline.
    pub moments: usize,
}
