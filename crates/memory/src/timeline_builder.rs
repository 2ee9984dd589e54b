//! Builds the timeline of a run phase by phase.

use plimsoll_core::Bytes;

use crate::timeline::{Allocation, Owner, Phase, PhaseSpan, Timeline};

/// A timeline that is under construction. Time moves on with every allocation and release.
#[derive(Default)]
pub(crate) struct TimelineBuilder {
    timeline: Timeline,
    now: usize,
}

/// Index in the timeline of an allocation that is still alive.
pub(crate) type AllocationIndex = usize;

impl TimelineBuilder {
    /// Adds memory that exists from the first to the last moment. Allocations of zero bytes are left out.
    pub(crate) fn resident(&mut self, size: Bytes, owner: Owner) {
        if size.0 > 0 {
            self.resident_made_by(size, owner, "resident");
        }
    }

    /// Adds memory that exists from the first to the last moment, made by the operation `made_by`.
    pub(crate) fn resident_made_by(&mut self, size: Bytes, owner: Owner, made_by: &'static str) {
        let death = usize::MAX;
        self.timeline.allocations.push(Allocation { size, birth: 0, death, owner, phase: Phase::Forward, made_by });
    }

    /// Adds the phases of `trace`, without its weights, as `count` micro-batches that are computed at the same time.
    /// Returns the gradients of each micro-batch: they stay alive after it.
    pub(crate) fn micro_batches(&mut self, trace: &Timeline, count: u32) -> Vec<Vec<AllocationIndex>> {
        let first = trace.phases.first().map_or(0, |span| span.start);
        let start = self.now + 1;
        let moment = |moment: usize| start + moment.saturating_sub(first);
        for span in &trace.phases {
            let span = PhaseSpan { start: moment(span.start), end: moment(span.end), ..*span };
            self.timeline.phases.push(span);
        }
        let end = moment(trace.moments);
        let mut gradients = Vec::new();
        for _ in 0..count {
            let mut own = Vec::new();
            for one in trace.allocations.iter().filter(|one| one.death > first && one.owner != Owner::Weights) {
                let is_gradient = one.owner == Owner::Gradients;
                if is_gradient {
                    own.push(self.timeline.allocations.len());
                }
                let death = if is_gradient { usize::MAX } else { moment(one.death).min(end) };
                self.timeline.allocations.push(Allocation { birth: moment(one.birth), death, ..*one });
            }
            gradients.push(own);
        }
        self.now = end;
        gradients
    }

    /// Adds the flat tensors of `sizes` that the gradients of a micro-batch are copied into.
    pub(crate) fn flat_gradients(&mut self, sizes: &[Bytes]) -> Vec<AllocationIndex> {
        let sum = |&size| self.allocate(size, Owner::Gradients, Phase::Backward, "flat gradients");
        sizes.iter().map(sum).collect()
    }

    /// Adds an update in flat tensors: the new weights take the memory of the gradients.
    pub(crate) fn flat_optimizer(&mut self, gradients: Vec<AllocationIndex>) {
        self.enter(Phase::Optimizer);
        self.release(gradients);
        self.close();
    }

    /// Adds the gradient norm and AdamW, as `plimsoll-train` computes them: parameter by parameter, each gradient is
    /// squared into a new tensor, and each new parameter is written beside the old parameter. All old parameters are
    /// freed at the end.
    pub(crate) fn optimizer(&mut self, parameters: &[u64], gradients: Vec<AllocationIndex>) {
        self.enter(Phase::Optimizer);
        let phase = Phase::Optimizer;
        let largest = parameters.iter().copied().max().unwrap_or(0);
        let norm = self.allocate(Bytes(largest * 4), Owner::Temporaries, phase, "gradient norm");
        self.release([norm]);
        let mut gradients = gradients.into_iter();
        let mut updated = Vec::new();
        for &values in parameters {
            let size = Bytes(values * 4);
            let square = self.allocate(size, Owner::Temporaries, phase, "squared gradient");
            let gradient = gradients.next();
            self.release(gradient.into_iter().chain([square]));
            let root = self.allocate(size, Owner::Temporaries, phase, "step");
            updated.push(self.allocate(size, Owner::Weights, phase, "updated parameter"));
            self.release([root]);
        }
        self.release(gradients);
        // The updated parameters replace the old ones, which have the same sizes: either set may go.
        self.release(updated);
        self.close();
    }

    /// Adds a validation step after the last phase.
    pub(crate) fn validation(&mut self, validation: &Timeline) {
        self.micro_batches(validation, 1);
    }

    /// Adds the phase that copies weights and optimizer state, `size` bytes, for a background writer. The copy stays
    /// alive until the caller passes its index to `release`.
    pub(crate) fn checkpoint(&mut self, size: Bytes) -> AllocationIndex {
        self.enter(Phase::Checkpoint);
        let copy = self.allocate(size, Owner::Temporaries, Phase::Checkpoint, "snapshot");
        self.close();
        copy
    }

    /// Ends the life of the allocations with these indices.
    pub(crate) fn release(&mut self, indices: impl IntoIterator<Item = AllocationIndex>) {
        for index in indices {
            self.timeline.allocations[index].death = self.now + 1;
        }
        self.now += 1;
    }

    /// Returns the finished timeline. Allocations that are still alive end at its last moment.
    pub(crate) fn build(mut self) -> Timeline {
        let end = self.now + 2;
        for one in &mut self.timeline.allocations {
            one.death = one.death.min(end);
        }
        self.timeline.moments = end;
        self.timeline
    }

    fn allocate(&mut self, size: Bytes, owner: Owner, phase: Phase, made_by: &'static str) -> AllocationIndex {
        self.now += 1;
        let birth = self.now;
        self.timeline.allocations.push(Allocation { size, birth, death: usize::MAX, owner, phase, made_by });
        self.timeline.allocations.len() - 1
    }

    /// Begins `phase` at the next moment.
    fn enter(&mut self, phase: Phase) {
        let start = self.now + 1;
        self.timeline.phases.push(PhaseSpan { phase, start, end: start });
    }

    /// Ends the current phase.
    fn close(&mut self) {
        let end = self.now + 1;
        if let Some(last) = self.timeline.phases.last_mut() {
            last.end = end;
        }
    }
}
