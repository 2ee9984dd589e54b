//! The life of a run in memory: a step with all its pieces, its optimizer, validation and checkpoint, put together from
//! traces and arithmetic.

use plimsoll_core::Bytes;

use crate::profile::MemoryProfile;
use crate::timeline::{Allocation, Owner, Phase, PhaseSpan, Timeline};
use crate::trace::Trace;

/// How a step is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMemory {
    /// Pieces that the batch of a step is cut into. More than two take no more memory than two.
    pub micro_batches: u32,
    /// Pieces that are computed at the same time.
    pub parallel_micro_batches: u32,
    /// What the host keeps of the whole batch, where that is the same memory; nothing on a card.
    pub host_batch: Bytes,
    /// Batches that wait on the device.
    pub prefetch: Bytes,
    /// What a library or the driver takes for itself.
    pub workspace: Bytes,
    /// Bits that the optimizer keeps for each value of a parameter: 64 for AdamW in fp32.
    pub state_bits: u64,
    /// Whether a checkpoint is copied out in the same memory, and written from there while the next steps are computed.
    pub snapshot: bool,
}

impl StepMemory {
    /// What the optimizer keeps of so many values.
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

/// A run's memory: one settled step, and what comes between steps.
#[derive(Clone, Debug)]
pub struct RunMemory {
    /// Everything, one phase after the other.
    pub timeline: Timeline,
    /// Weights, gradients and optimizer state: what does not depend on the batch.
    pub fixed: Bytes,
}

impl RunMemory {
    /// The life of a run whose largest piece is `piece`, and which validates as `validation` says.
    ///
    /// The step is one after the first: from then on the optimizer's state is there while pieces are computed, which
    /// is when most is in memory. (The first step makes that state from the gradients and ends where the others do.)
    pub fn new(piece: &Trace, validation: Option<&Timeline>, step: StepMemory) -> Self {
        let values: u64 = piece.parameters.iter().sum();
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
        builder.keep(piece.weights, Owner::Weights, "first values");
        // The copy, and the largest of the files that are made of it.
        let copy = Bytes(piece.weights.0 + state.0 + piece.weights.0.max(state.0));
        let copy = step.snapshot.then(|| builder.checkpoint(copy));
        let groups = step.micro_batches.div_ceil(step.parallel_micro_batches.max(1)).clamp(1, 2);
        let mut kept = Vec::new();
        for group in 0..groups {
            let count = step.parallel_micro_batches.max(1).min(step.micro_batches.max(1));
            let mut made = builder.micro_batches(&piece.timeline, count);
            // The first set stays, and the others are added to it.
            if group == 0 && !made.is_empty() {
                kept = made.remove(0);
            }
            builder.release(made.into_iter().flatten());
        }
        builder.optimizer(&piece.parameters, kept);
        if let Some(validation) = validation {
            builder.validation(validation);
        }
        builder.release(copy);
        let fixed = Bytes(piece.weights.0 + piece.gradients.0 + state.0);
        Self { timeline: builder.end(), fixed }
    }

    /// The most that is in memory at once.
    pub fn peak(&self) -> Bytes {
        self.timeline.peak()
    }
}

impl Timeline {
    /// The most that is in memory at once.
    pub fn peak(&self) -> Bytes {
        MemoryProfile::new(self).peak().stack.total()
    }

    /// What is in memory when `phase` begins for the first time.
    pub fn at_start_of(&self, phase: Phase) -> Option<Bytes> {
        let start = self.phases.iter().find(|span| span.phase == phase)?.start;
        Some(MemoryProfile::new(self).at(start.saturating_sub(1)).total())
    }

    /// What each owner has at the moment of the peak, largest first.
    pub fn owners_at_peak(&self) -> Vec<(Owner, Bytes)> {
        let peak = MemoryProfile::new(self).peak();
        let mut owners: Vec<(Owner, Bytes)> =
            crate::profile::OWNERS.iter().map(|&owner| (owner, peak.stack.of(owner))).collect();
        owners.retain(|(_, bytes)| bytes.0 > 0);
        owners.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        owners
    }

    /// The most that is in memory at once in each phase, in the order in which the phases begin.
    pub fn peaks_by_phase(&self) -> Vec<(Phase, Bytes)> {
        let curve = MemoryProfile::new(self);
        let mut peaks: Vec<(Phase, Bytes)> = Vec::new();
        for span in self.phases.iter().filter(|span| span.start < span.end) {
            let highest = curve.highest(span.start..span.end).stack.total();
            match peaks.iter_mut().find(|(phase, _)| *phase == span.phase) {
                Some((_, most)) => *most = highest.max(*most),
                None => peaks.push((span.phase, highest)),
            }
        }
        peaks
    }

    /// The phase at the moment of the peak.
    pub fn phase_at_peak(&self) -> Option<Phase> {
        let moment = MemoryProfile::new(self).peak().moment;
        self.phases.iter().find(|span| (span.start..span.end).contains(&moment)).map(|span| span.phase)
    }
}

/// A timeline as it is written, one phase after the other.
#[derive(Default)]
struct TimelineBuilder {
    timeline: Timeline,
    now: usize,
}

/// A place in the timeline of something that is still there.
type AllocationIndex = usize;

impl TimelineBuilder {
    fn allocate(&mut self, size: Bytes, owner: Owner, phase: Phase, made_by: &'static str) -> AllocationIndex {
        self.now += 1;
        let birth = self.now;
        self.timeline.allocations.push(Allocation { size, birth, death: usize::MAX, owner, phase, made_by });
        self.timeline.allocations.len() - 1
    }

    fn release(&mut self, places: impl IntoIterator<Item = AllocationIndex>) {
        for place in places {
            self.timeline.allocations[place].death = self.now + 1;
        }
        self.now += 1;
    }

    /// Something that is there before all else and to the end.
    fn resident(&mut self, size: Bytes, owner: Owner) {
        if size.0 > 0 {
            self.keep(size, owner, "kept");
        }
    }

    fn keep(&mut self, size: Bytes, owner: Owner, made_by: &'static str) {
        let death = usize::MAX;
        self.timeline.allocations.push(Allocation { size, birth: 0, death, owner, phase: Phase::Forward, made_by });
    }

    fn enter(&mut self, phase: Phase, moments: usize) {
        let start = self.now + 1;
        self.timeline.phases.push(PhaseSpan { phase, start, end: start + moments });
    }

    /// `count` pieces at the same time. Gives the gradients of each, which outlive their piece.
    fn micro_batches(&mut self, piece: &Timeline, count: u32) -> Vec<Vec<AllocationIndex>> {
        let first = piece.phases.first().map_or(0, |span| span.start);
        let start = self.now + 1;
        let moment = |moment: usize| start + moment.saturating_sub(first);
        for span in &piece.phases {
            let span = PhaseSpan { start: moment(span.start), end: moment(span.end), ..*span };
            self.timeline.phases.push(span);
        }
        let end = moment(piece.moments);
        let mut gradients = Vec::new();
        for _ in 0..count {
            let mut own = Vec::new();
            for one in piece.allocations.iter().filter(|one| one.death > first && one.owner != Owner::Weights) {
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

    /// The norm of the gradients, and AdamW parameter by parameter, as `plimsoll-train` computes them: each gradient is
    /// squared beside itself, and the parameter is made anew beside the old one, which goes with all the others.
    fn optimizer(&mut self, parameters: &[u64], kept: Vec<AllocationIndex>) {
        self.enter(Phase::Optimizer, 0);
        let phase = Phase::Optimizer;
        let largest = parameters.iter().copied().max().unwrap_or(0);
        let norm = self.allocate(Bytes(largest * 4), Owner::Temporaries, phase, "gradient norm");
        self.release([norm]);
        let mut gradients = kept.into_iter();
        let mut made = Vec::new();
        for &values in parameters {
            let size = Bytes(values * 4);
            let square = self.allocate(size, Owner::Temporaries, phase, "squared gradient");
            let gradient = gradients.next();
            self.release(gradient.into_iter().chain([square]));
            let root = self.allocate(size, Owner::Temporaries, phase, "step");
            made.push(self.allocate(size, Owner::Weights, phase, "moved parameter"));
            self.release([root]);
        }
        self.release(gradients);
        // What moved takes the old ones' place; for what follows they are the same.
        self.release(made);
        self.close();
    }

    fn validation(&mut self, validation: &Timeline) {
        self.micro_batches(validation, 1);
    }

    /// A copy of weights and state for the writer, who takes his time.
    fn checkpoint(&mut self, size: Bytes) -> AllocationIndex {
        self.enter(Phase::Checkpoint, 0);
        let copy = self.allocate(size, Owner::Temporaries, Phase::Checkpoint, "snapshot");
        self.close();
        copy
    }

    /// Ends the phase that is open now.
    fn close(&mut self) {
        let end = self.now + 1;
        if let Some(last) = self.timeline.phases.last_mut() {
            last.end = end;
        }
    }

    fn end(mut self) -> Timeline {
        let end = self.now + 2;
        for one in &mut self.timeline.allocations {
            one.death = one.death.min(end);
        }
        self.timeline.moments = end;
        self.timeline
    }
}
