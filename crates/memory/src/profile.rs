//! Memory by owner over the moments of a timeline: peaks, and the columns of a drawing.

use std::ops::Range;

use plimsoll_core::Bytes;

use crate::timeline::{Owner, Phase, Timeline};

/// Every owner, in the order in which a drawing stacks them: lasting memory at the bottom, so that its edges stay
/// level.
pub(crate) const OWNERS: [Owner; 8] = [
    Owner::Weights,
    Owner::Optimizer,
    Owner::Gradients,
    Owner::Workspace,
    Owner::Batch,
    Owner::Prefetch,
    Owner::Activations,
    Owner::Temporaries,
];

/// Returns the label of a memory owner, such as weights or gradients, in the drawn timeline.
pub(crate) fn owner_name(owner: Owner) -> &'static str {
    match owner {
        Owner::Weights => "weights",
        Owner::Gradients => "gradients",
        Owner::Optimizer => "optimizer",
        Owner::Activations => "activations",
        Owner::Temporaries => "temporaries",
        Owner::Batch => "batch",
        Owner::Prefetch => "prefetch",
        Owner::Workspace => "workspace",
    }
}

/// Returns the name of a phase in drawings.
pub(crate) fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Forward => "forward",
        Phase::Backward => "backward",
        Phase::Optimizer => "optimizer",
        Phase::Validation => "validation",
        Phase::Decoding => "decoding",
        Phase::Checkpoint => "checkpoint",
    }
}

/// Bytes that each owner has at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerBytes([u64; OWNERS.len()]);

impl OwnerBytes {
    /// Returns the bytes of one owner.
    pub(crate) fn of(&self, owner: Owner) -> Bytes {
        Bytes(self.0[owner as usize])
    }

    /// Returns the sum of the bytes of all owners.
    pub(crate) fn total(&self) -> Bytes {
        Bytes(self.0.iter().sum())
    }
}

/// The memory of each owner at one moment of a timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// Moment of the timeline at which the owners have this memory.
    pub(crate) moment: usize,
    /// Bytes of each owner at the moment.
    pub(crate) stack: OwnerBytes,
}

/// One column of a drawing: a range of moments, with the moment that has the most memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Range of moments that the column covers.
    pub(crate) moments: Range<usize>,
    /// First moment of the column at which memory is largest.
    pub(crate) highest: Level,
}

/// Memory by owner over the moments of a timeline. Only changes are stored, at most two for each allocation.
pub(crate) struct MemoryProfile {
    /// Moments at which memory changes, in order; the first is moment 0.
    levels: Vec<Level>,
    moments: usize,
}

impl MemoryProfile {
    /// Computes the profile of `timeline`. Allocations that are not alive at any moment do not count.
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let lasting = || timeline.allocations.iter().filter(|one| one.birth < one.death);
        let mut events: Vec<(usize, usize, Owner, u64)> = Vec::with_capacity(timeline.allocations.len() * 2);
        for one in lasting() {
            events.push((one.birth, 1, one.owner, one.size.0));
            events.push((one.death, 0, one.owner, one.size.0));
        }
        // Deaths come first: the memory of a moment is what is alive after all its changes.
        events.sort_unstable_by_key(|&(moment, birth, ..)| (moment, birth));
        let mut levels = vec![Level::default()];
        let mut stack = OwnerBytes::default();
        for (moment, birth, owner, size) in events {
            let bytes = &mut stack.0[owner as usize];
            *bytes = if birth == 1 { *bytes + size } else { *bytes - size };
            match levels.last_mut() {
                Some(last) if last.moment == moment => last.stack = stack,
                _ => levels.push(Level { moment, stack }),
            }
        }
        // An allocation after the last moment is a mistake in the timeline. A drawing should show it.
        let moments = lasting().map(|one| one.birth + 1).max().unwrap_or(0).max(timeline.moments);
        Self { levels, moments }
    }

    /// Returns the number of moments of the timeline; see [`Timeline`] for what a moment is.
    pub(crate) fn moments(&self) -> usize {
        self.moments
    }

    /// Returns the first moment with the most memory.
    pub(crate) fn peak(&self) -> Level {
        self.highest(0..self.moments)
    }

    /// Returns the memory of each owner at `moment`.
    pub(crate) fn at(&self, moment: usize) -> OwnerBytes {
        self.levels[self.index_at(moment)].stack
    }

    /// Returns the first moment of the range `moments` with the most memory; the start of the range if the range is
    /// empty.
    pub(crate) fn highest(&self, moments: Range<usize>) -> Level {
        let mut highest = Level { moment: moments.start, stack: self.at(moments.start) };
        let later = &self.levels[self.index_at(moments.start) + 1..];
        for level in later.iter().take_while(|level| level.moment < moments.end) {
            if level.stack.total() > highest.stack.total() {
                highest = *level;
            }
        }
        highest
    }

    /// Returns the most memory that `owner` has at any moment, which may be another moment than the peak.
    pub(crate) fn most(&self, owner: Owner) -> Bytes {
        self.levels.iter().map(|level| level.stack.of(owner)).max().unwrap_or_default()
    }

    /// Divides the profile into at most `most` columns of equal width. Each column keeps its highest moment, so one
    /// column has the peak.
    pub(crate) fn columns(&self, most: usize) -> Vec<Column> {
        let count = self.moments.min(most);
        let edge = |index: usize| (index as u128 * self.moments as u128 / count as u128) as usize;
        (0..count)
            .map(|index| {
                let moments = edge(index)..edge(index + 1);
                Column { highest: self.highest(moments.clone()), moments }
            })
            .collect()
    }

    /// Returns the index of the last level that starts at `moment` or before.
    fn index_at(&self, moment: usize) -> usize {
        self.levels.partition_point(|level| level.moment <= moment) - 1
    }
}

impl Timeline {
    /// Computes the memory in use at each moment, in bytes, if an allocation takes as many bytes as `scaled` returns for its
    /// size.
    pub(crate) fn in_use(&self, scaled: impl Fn(Bytes) -> u64) -> Vec<u64> {
        let mut changes = vec![0_i64; self.moments + 1];
        for one in self.allocations.iter().filter(|one| one.birth < one.death) {
            let size = scaled(one.size) as i64;
            changes[one.birth.min(self.moments)] += size;
            changes[one.death.min(self.moments)] -= size;
        }
        let mut sum = 0;
        let running = changes.into_iter().map(|change| {
            sum += change;
            sum.max(0) as u64
        });
        running.take(self.moments.max(1)).collect()
    }

    /// Computes the peak memory of the timeline.
    pub fn peak(&self) -> Bytes {
        MemoryProfile::new(self).peak().stack.total()
    }

    /// Returns the memory just before `phase` begins for the first time, or `None` if the phase never begins.
    pub fn at_start_of(&self, phase: Phase) -> Option<Bytes> {
        let start = self.phases.iter().find(|span| span.phase == phase)?.start;
        Some(MemoryProfile::new(self).at(start.saturating_sub(1)).total())
    }

    /// Returns the memory of each owner at the moment of the peak, largest first. Owners without memory are left out.
    pub fn owners_at_peak(&self) -> Vec<(Owner, Bytes)> {
        let peak = MemoryProfile::new(self).peak();
        let mut owners: Vec<(Owner, Bytes)> = OWNERS.iter().map(|&owner| (owner, peak.stack.of(owner))).collect();
        owners.retain(|(_, bytes)| bytes.0 > 0);
        owners.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        owners
    }

    /// Returns the peak memory of each phase, in the order in which the phases first begin.
    pub fn peaks_by_phase(&self) -> Vec<(Phase, Bytes)> {
        let profile = MemoryProfile::new(self);
        let mut peaks: Vec<(Phase, Bytes)> = Vec::new();
        for span in self.phases.iter().filter(|span| span.start < span.end) {
            let highest = profile.highest(span.start..span.end).stack.total();
            match peaks.iter_mut().find(|(phase, _)| *phase == span.phase) {
                Some((_, most)) => *most = highest.max(*most),
                None => peaks.push((span.phase, highest)),
            }
        }
        peaks
    }

    /// Returns the phase at the moment of the peak; `None` if the peak lies outside of all phases.
    pub fn phase_at_peak(&self) -> Option<Phase> {
        let moment = MemoryProfile::new(self).peak().moment;
        self.phases.iter().find(|span| (span.start..span.end).contains(&moment)).map(|span| span.phase)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::timeline::{Allocation, PhaseSpan};

    /// Makes a timeline of `count` random allocations from `seed`, in three phases.
    pub(crate) fn random_timeline(seed: u64, count: usize, moments: usize) -> Timeline {
        let mut state = seed;
        let mut draw = |below: usize| {
            // Knuth's MMIX constants; the low bits of such a generator are poor.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut allocations: Vec<Allocation> = (0..count)
            .map(|_| {
                let birth = draw(moments);
                let size = Bytes(draw(1 << 20) as u64);
                let (owner, death) = (OWNERS[draw(8)], birth + draw(moments));
                Allocation { size, birth, death, owner, phase: Phase::Forward, made_by: "matmul" }
            })
            .collect();
        allocations.sort_by_key(|one| one.birth);
        let edges = [0, moments / 3, moments * 9 / 10, moments];
        let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        let phases = (0..3).map(|i| PhaseSpan { phase: phases[i], start: edges[i], end: edges[i + 1] }).collect();
        Timeline { allocations, phases, moments }
    }

    /// Sums the allocations that are alive at one moment, as a reference for the profile.
    fn sum_at(timeline: &Timeline, moment: usize) -> OwnerBytes {
        let mut stack = OwnerBytes::default();
        for one in timeline.allocations.iter().filter(|one| one.birth <= moment && moment < one.death) {
            stack.0[one.owner as usize] += one.size.0;
        }
        stack
    }

    #[test]
    fn profile_equals_the_sum_of_live_allocations() {
        for seed in 0..30 {
            let moments = 1 + seed as usize * 7;
            let timeline = random_timeline(seed, 60, moments);
            let profile = MemoryProfile::new(&timeline);
            let slow: Vec<OwnerBytes> = (0..moments).map(|moment| sum_at(&timeline, moment)).collect();
            assert!((0..moments).all(|moment| profile.at(moment) == slow[moment]), "seed {seed}");
            let most = slow.iter().map(OwnerBytes::total).max().unwrap();
            let first = slow.iter().position(|stack| stack.total() == most).unwrap();
            assert_eq!(profile.peak(), Level { moment: first, stack: slow[first] }, "seed {seed}");
        }
    }

    #[test]
    fn columns_cover_every_moment_and_keep_the_peak() {
        for seed in 0..30 {
            let profile = MemoryProfile::new(&random_timeline(seed, 200, 1 + seed as usize * 40));
            for most in [1, 7, 100, 5000] {
                let columns = profile.columns(most);
                assert_eq!(columns.len(), most.min(profile.moments()));
                assert!(columns.windows(2).all(|pair| pair[0].moments.end == pair[1].moments.start));
                assert_eq!(columns.last().unwrap().moments.end, profile.moments());
                assert!(columns.iter().all(|column| column.moments.contains(&column.highest.moment)));
                assert!(columns.iter().any(|column| column.highest == profile.peak()), "seed {seed}, {most} columns");
            }
        }
    }

    #[test]
    fn empty_timeline_has_an_empty_profile() {
        let profile = MemoryProfile::new(&Timeline::default());
        assert_eq!((profile.peak(), profile.columns(10)), (Level::default(), vec![]));
    }

    #[test]
    fn endless_and_empty_lifetimes_are_counted_correctly() {
        let one = |birth, death| Allocation {
            size: Bytes(5),
            birth,
            death,
            owner: Owner::Weights,
            phase: Phase::Forward,
            made_by: "start",
        };
        let timeline =
            Timeline { allocations: vec![one(0, usize::MAX), one(1, 1), one(9, 10)], phases: vec![], moments: 3 };
        let profile = MemoryProfile::new(&timeline);
        assert_eq!((profile.moments(), profile.peak().moment), (10, 9));
        assert_eq!(profile.at(2).of(Owner::Weights), Bytes(5));
    }

    #[test]
    fn owners_lists_every_owner_once() {
        let mut places: Vec<usize> = OWNERS.iter().map(|&owner| owner as usize).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
