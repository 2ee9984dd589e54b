//! Memory of a run: traces of a micro-batch and of validation, put together with optimizer, prefetch and checkpoint.

use plimsoll_core::Bytes;

use crate::timeline::{Owner, Timeline};
use crate::timeline_builder::TimelineBuilder;
use crate::trace::Trace;

/// Memory of a step beside the micro-batch itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMemory {
    /// Number of micro-batches in a step. More than two groups of parallel micro-batches take no more memory than two
    /// groups. Default: 1.
    pub micro_batches: u32,
    /// Number of micro-batches that are computed at the same time. Default: 1.
    pub parallel_micro_batches: u32,
    /// Size of the whole batch on the host, where host and device share memory; 0 for a GPU.
    pub host_batch: Bytes,
    /// Memory of the batches that were sent to the device ahead of their step.
    pub prefetch: Bytes,
    /// Memory that libraries and the driver allocate for themselves.
    pub workspace: Bytes,
    /// Optimizer state for each parameter value, in bits. Default: 64, for AdamW in fp32.
    pub state_bits: u64,
    /// Whether a checkpoint copies weights and state in the same memory, and keeps the copy while later steps run.
    pub snapshot: bool,
}

impl StepMemory {
    /// Computes the optimizer state of `values` parameter values.
    pub fn state_of(&self, values: u64) -> Bytes {
        Bytes((values * self.state_bits).div_ceil(8))
    }
}

impl Default for StepMemory {
    fn default() -> Self {
        Self {
            micro_batches: 1,
            parallel_micro_batches: 1,
            host_batch: Bytes(0),
            prefetch: Bytes(0),
            workspace: Bytes(0),
            state_bits: 64,
            snapshot: false,
        }
    }
}

/// The memory of a run: one step, with validation and a checkpoint where the run has them.
#[derive(Clone, Debug)]
pub struct RunMemory {
    /// Every allocation of the run, phase after phase.
    pub timeline: Timeline,
    /// Memory that does not depend on the batch: weights, gradients and optimizer state.
    pub fixed: Bytes,
}

impl RunMemory {
    /// Computes the memory of a run whose largest micro-batch is `trace` and whose validation is `validation`.
    ///
    /// The step is the second step of a run: from then on the optimizer state exists while micro-batches are computed,
    /// which gives the peak. (The first step creates that state from the gradients and ends like every other step.)
    pub fn new(trace: &Trace, validation: Option<&Timeline>, step: StepMemory) -> Self {
        let values: u64 = trace.parameters.iter().sum();
        let state = step.state_of(values);
        let mut builder = TimelineBuilder::default();
        for (size, owner) in [
            (state, Owner::Optimizer),
            (step.workspace, Owner::Workspace),
            (step.host_batch, Owner::Batch),
            (step.prefetch, Owner::Prefetch),
        ] {
            builder.resident(size, owner);
        }
        builder.resident_made_by(trace.weights, Owner::Weights, "initial values");
        // The copy, and the buffer of the largest file that is written from it.
        let copy = Bytes(trace.weights.0 + state.0 + trace.weights.0.max(state.0));
        let copy = step.snapshot.then(|| builder.checkpoint(copy));
        let groups = step.micro_batches.div_ceil(step.parallel_micro_batches.max(1)).clamp(1, 2);
        let mut accumulated = Vec::new();
        for group in 0..groups {
            let count = step.parallel_micro_batches.max(1).min(step.micro_batches.max(1));
            let mut gradients = builder.micro_batches(&trace.timeline, count);
            // The first gradients stay, and all others are added to them.
            if group == 0 && !gradients.is_empty() {
                accumulated = gradients.remove(0);
                if !trace.flat.is_empty() {
                    let sum = builder.flat_gradients(&trace.flat);
                    builder.release(std::mem::replace(&mut accumulated, sum));
                }
            }
            builder.release(gradients.into_iter().flatten());
        }
        match trace.flat.is_empty() {
            true => builder.optimizer(&trace.parameters, accumulated),
            false => builder.flat_optimizer(accumulated),
        }
        if let Some(validation) = validation {
            builder.validation(validation);
        }
        builder.release(copy);
        let fixed = Bytes(trace.weights.0 + trace.gradients.0 + state.0);
        Self { timeline: builder.build(), fixed }
    }

    /// Returns the peak memory of the run.
    pub fn peak(&self) -> Bytes {
        self.timeline.peak()
    }
}
