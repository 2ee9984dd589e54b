//! The memory that the pools of a GPU reserve in a run, from the trace of its largest micro-batch.

use std::cell::Cell;
use std::convert::Infallible;
use std::ops::RangeInclusive;

use plimsoll_core::Bytes;

use crate::page::{best_page, room};
use crate::pools::{Pools, SMALL_MAX, Slot};
use crate::run_memory::StepMemory;
use crate::timeline::{Allocation, Owner, Timeline};
use crate::trace::Trace;

/// Bytes reserved outside the pools for kernel arguments and for the read of the norm.
const OUTSIDE_POOLS: u64 = 128 << 10;
/// Bytes reserved outside the pools for the reads of a loss, such as those of CTC, as measured on Vulkan.
const FOR_READS: u64 = 128 << 10;

impl Trace {
    /// Returns the size of the largest single allocation of the micro-batch.
    pub fn largest(&self) -> Bytes {
        self.timeline.allocations.iter().map(|one| one.size).max().unwrap_or_default()
    }

    /// Returns the size of pages with which the pools of CubeCL reserve the least memory in a run whose largest micro-batch
    /// has this trace, if a device allows allocations of at most `allocation` bytes.
    ///
    /// The pages of a GPU pool are as large as the largest allocation so far. So a run that first makes and drops an
    /// allocation of this size has pages of this size, and no others; `plimsoll-train` has a function that does so. With
    /// pages that its largest tensor fills, a Conformer took 6 to 10 % more than was in use
    /// (docs/log/memory-accuracy.md, "The size of the pages of a GPU"), and without any preallocation 32 to 48 % more
    /// (docs/log/memory-accuracy.md, "What CubeCL's pools reserve").
    pub fn page(&self, step: StepMemory, allocation: Bytes) -> Bytes {
        self.with_run(|run| run.best_page(step, allocation).0)
    }

    /// Calls `compute` with a run of this micro-batch.
    fn with_run<R>(&self, compute: impl FnOnce(&PoolRun<'_>) -> R) -> R {
        let (lives, sizes) = (Lives::new(&self.timeline), self.timeline.sizes());
        compute(&PoolRun { lives: &lives, sizes: &sizes, flat: &self.flat, reads: self.reads, beside_pages: None })
    }

    /// Computes the most memory that the pools of CubeCL reserve in the first two steps of a run whose largest
    /// micro-batch has this trace, with pages preallocated for [`page`](Self::page) bytes on a device that allows
    /// allocations of any size. The first step creates the optimizer state, the second step updates it.
    pub fn reserved(&self, step: StepMemory) -> Bytes {
        self.reserved_with_page(self.page(step, Bytes(u64::MAX)), step)
    }

    /// Computes the most memory that the pools of CubeCL reserve in the first two steps of a run, with pages
    /// preallocated for `page` bytes or the largest allocation of this trace, whichever is larger.
    pub fn reserved_with_page(&self, page: Bytes, step: StepMemory) -> Bytes {
        self.reserved_within(page, step, None, Bytes(u64::MAX))
    }

    /// Computes the same as [`reserved_with_page`](Self::reserved_with_page) of a run that then validates with the timeline
    /// `validation`, if given. Stops as soon as the memory exceeds `limit`, and then returns a part of it that does.
    pub(crate) fn reserved_within(
        &self,
        page: Bytes,
        step: StepMemory,
        validation: Option<&Timeline>,
        limit: Bytes,
    ) -> Bytes {
        self.with_run(|run| run.reserved_within(page, step, validation, limit))
    }
}

impl Timeline {
    /// Returns the size of each allocation.
    fn sizes(&self) -> Vec<u64> {
        self.allocations.iter().map(|one| one.size.0).collect()
    }
}

/// Births and deaths of the allocations of a timeline, without their sizes.
#[derive(Debug)]
pub(crate) struct Lives {
    /// Twice the index of the allocation, plus one at its birth; in the order of time. Without weights, which exist before,
    /// and without the deaths of gradients, which stay.
    changes: Vec<u32>,
    /// Indices of the weights.
    weights: Vec<u32>,
    /// Indices of the tensors of the batch.
    batch: Vec<u32>,
}

impl Lives {
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let weights = |one: &Allocation| one.owner == Owner::Weights;
        let mut changes: Vec<(usize, bool, u32)> = Vec::with_capacity(timeline.allocations.len() * 2);
        let all = || (0_u32..).zip(&timeline.allocations);
        for (index, one) in all().filter(|(_, one)| !weights(one) && one.birth < one.death) {
            changes.push((one.birth, true, index));
            if one.owner != Owner::Gradients {
                changes.push((one.death, false, index));
            }
        }
        // At the same moment deaths come first: they make room.
        changes.sort_unstable();
        Self {
            changes: changes.into_iter().map(|(_, is_birth, index)| index * 2 + u32::from(is_birth)).collect(),
            weights: all().filter(|(_, one)| weights(one)).map(|(index, _)| index).collect(),
            batch: all().filter(|(_, one)| one.owner == Owner::Batch).map(|(index, _)| index).collect(),
        }
    }
}

/// A run whose use of the pools is simulated: the allocations of its largest micro-batch.
pub(crate) struct PoolRun<'a> {
    pub(crate) lives: &'a Lives,
    /// Size of each allocation.
    pub(crate) sizes: &'a [u64],
    /// Sizes of the flat tensors that hold all trained parameters.
    pub(crate) flat: &'a [Bytes],
    /// Number of reads from the device for which the loss waits.
    pub(crate) reads: u32,
    /// Memory [beside the pages](Self::beside_pages) for larger tensors, if it is known: then only those are simulated.
    pub(crate) beside_pages: Option<Bytes>,
}

/// Bits of a number in fp32.
const F32_BITS: u64 = 32;

impl PoolRun<'_> {
    /// Finds the page of at most `allocation` bytes with which the pools reserve the least memory, and that memory.
    pub(crate) fn best_page(&self, step: StepMemory, allocation: Bytes) -> (Bytes, Bytes) {
        let largest = Bytes(self.largest());
        let reserved = |page, limit| Ok::<_, Infallible>(self.reserved_within(page, step, None, limit));
        best_page((largest, allocation), reserved).unwrap_or_else(|never| match never {})
    }

    fn largest(&self) -> u64 {
        self.sizes.iter().copied().chain(self.flat()).max().unwrap_or_default()
    }

    fn flat(&self) -> impl Iterator<Item = u64> {
        self.flat.iter().map(|flat| flat.0)
    }

    /// Computes the most memory that the pools reserve in the first two steps, with pages preallocated for `page` bytes or
    /// the largest allocation, and then in a validation with the timeline `validation`. Stops as soon as the memory exceeds
    /// `limit`, and then returns a part of it that does.
    pub(crate) fn reserved_within(
        &self,
        page: Bytes,
        step: StepMemory,
        validation: Option<&Timeline>,
        limit: Bytes,
    ) -> Bytes {
        let outside = self.beside_pages.map_or_else(|| self.outside(step), |beside| beside.0);
        let limit = limit.0.saturating_sub(outside);
        let sizes = if self.beside_pages.is_some() { SMALL_MAX + 1..=u64::MAX } else { 0..=u64::MAX };
        Bytes(self.simulated((page, sizes), step, validation, limit).most + outside)
    }

    /// Computes the memory beside the pages for larger tensors: the pages for small ones, and what is outside of the pools.
    pub(crate) fn beside_pages(&self, step: StepMemory) -> Bytes {
        Bytes(self.simulated((Bytes(0), 0..=SMALL_MAX), step, None, u64::MAX).most + self.outside(step))
    }

    /// Computes the memory outside of the pools.
    fn outside(&self, step: StepMemory) -> u64 {
        let for_reads = if self.reads > 0 { FOR_READS } else { 0 };
        OUTSIDE_POOLS + for_reads + step.workspace.0
    }

    /// Simulates the pools for allocations of `sizes` until they exceed `limit`; see
    /// [`reserved_within`](Self::reserved_within).
    fn simulated(
        &self,
        (page, sizes): (Bytes, RangeInclusive<u64>),
        step: StepMemory,
        validation: Option<&Timeline>,
        limit: u64,
    ) -> PoolSimulation {
        let mut run = PoolSimulation::new(sizes, limit);
        run.preallocate(page.0, self.largest());
        // The weights are made one by one and then copied into flat tensors.
        let made = run.reserve_all(self.lives.weights.iter().map(|&index| self.sizes[index as usize]));
        let first_weights = run.reserve_all(self.flat());
        run.free_all(made);
        run.pools.release_empty();
        let changes = run.changes(self.lives, self.sizes);
        let (gradients, sent) = run.step(&changes, self, step, Vec::new());
        // The first 32 bits of state overwrite the gradients. The rest is new, and so are the updated weights.
        let rest_of_state = step.state_bits.saturating_sub(F32_BITS);
        if rest_of_state > 0 {
            run.reserve_all(self.flat().map(|size| (size * rest_of_state).div_ceil(F32_BITS)));
        }
        run.reserve_all(self.flat());
        run.free_all(first_weights);
        if step.state_bits == 0 {
            run.free_all(gradients);
        }
        // A run returns unused memory to the device after the first step.
        run.pools.release_empty();
        // From the second step on everything overwrites what it replaces, and sends the next batch to the same place.
        let (mut gradients, mut sent) = run.step(&changes, self, step, sent);
        if !sent.is_empty() {
            run.free_all(gradients);
            (gradients, sent) = run.step(&changes, self, step, sent);
        }
        if let Some(validation) = validation {
            // Before a validation no batch is sent.
            run.free_all(gradients);
            run.free_all(sent.into_iter().map(|(_, slot)| slot).collect());
            let sizes = validation.sizes();
            let last = run.micro_batch(&run.changes(&Lives::new(validation), &sizes), &sizes, Vec::new());
            run.free_all(last);
        }
        run
    }
}

/// Simulates the memory pools of CubeCL during a run.
#[derive(Debug)]
struct PoolSimulation {
    pools: Pools,
    most: u64,
    /// Memory beyond which the rest of the run does not matter.
    limit: u64,
    /// Sizes of the allocations that are simulated. All others are left out.
    sizes: RangeInclusive<u64>,
    /// Positions of the allocations of a micro-batch; all `NONE` between micro-batches.
    slots: Vec<Slot>,
}

thread_local! {
    /// Positions of the last simulation of this thread, for the next: a plan simulates thousands of runs, and a new list of some
    /// hundred kB for each would be new pages of the system each time.
    static SLOTS: Cell<Vec<Slot>> = const { Cell::new(Vec::new()) };
}

impl Drop for PoolSimulation {
    fn drop(&mut self) {
        SLOTS.set(std::mem::take(&mut self.slots));
    }
}

impl PoolSimulation {
    fn new(sizes: RangeInclusive<u64>, limit: u64) -> Self {
        Self { pools: Pools::default(), most: 0, limit, sizes, slots: SLOTS.take() }
    }

    /// Reserves and frees an allocation of `page` bytes, or of `largest` bytes if that is more, so that all pages have its
    /// size.
    fn preallocate(&mut self, page: u64, largest: u64) {
        let room = room(page).max(largest);
        if self.sizes.contains(&room) {
            self.pools.spare = page.max(largest) - room;
            let page = self.reserve(room);
            self.pools.free(page);
        }
    }

    fn reserve(&mut self, size: u64) -> Slot {
        let slot = self.pools.reserve(size);
        self.most = self.most.max(self.pools.reserved);
        slot
    }

    fn reserve_all(&mut self, sizes: impl IntoIterator<Item = u64>) -> Vec<Slot> {
        let simulated = self.sizes.clone();
        sizes.into_iter().filter(|size| simulated.contains(size)).map(|size| self.reserve(size)).collect()
    }

    fn free_all(&mut self, slots: Vec<Slot>) {
        slots.into_iter().for_each(|slot| self.pools.free(slot));
    }

    /// Returns the births and deaths of the allocations that are simulated, as [`Lives::changes`] has them.
    fn changes(&self, lives: &Lives, sizes: &[u64]) -> Vec<u32> {
        let is_simulated = |change: &u32| self.sizes.contains(&sizes[(change / 2) as usize]);
        lives.changes.iter().copied().filter(is_simulated).collect()
    }

    /// Simulates all micro-batches of a step of `of`, the first of which was `sent` before the step. Returns the slots of the sum of their
    /// gradients and of the first micro-batch of the next step. Both stay reserved.
    fn step(
        &mut self,
        changes: &[u32],
        of: &PoolRun<'_>,
        step: StepMemory,
        sent: Vec<(u32, Slot)>,
    ) -> (Vec<Slot>, Vec<(u32, Slot)>) {
        let first = self.micro_batch(changes, of.sizes, sent);
        let sum = self.reserve_all(of.flat());
        self.free_all(first);
        if step.micro_batches > 1 {
            // The gradients of all further micro-batches are added to the sum.
            let added = self.micro_batch(changes, of.sizes, Vec::new());
            self.free_all(added);
        }
        let batch = if step.prefetch.0 > 0 { &of.lives.batch[..] } else { &[] };
        let simulated = self.sizes.clone();
        let batch = batch.iter().map(|&index| (index, of.sizes[index as usize]));
        let next = batch.filter(|(_, size)| simulated.contains(size)).map(|(index, size)| (index, self.reserve(size)));
        (sum, next.collect())
    }

    /// Simulates one micro-batch, of which the tensors `sent` are there. Returns the slots of the gradients, which stay reserved after the
    /// micro-batch.
    fn micro_batch(&mut self, changes: &[u32], sizes: &[u64], sent: Vec<(u32, Slot)>) -> Vec<Slot> {
        let mut slots = std::mem::take(&mut self.slots);
        slots.resize(sizes.len().max(slots.len()), Slot::NONE);
        sent.into_iter().for_each(|(index, slot)| slots[index as usize] = slot);
        for &change in changes {
            let (index, is_birth) = ((change / 2) as usize, change % 2 == 1);
            if !is_birth {
                self.pools.free(std::mem::replace(&mut slots[index], Slot::NONE));
            } else if slots[index].pool == Slot::NONE.pool {
                slots[index] = self.reserve(sizes[index]);
                if self.most > self.limit {
                    break;
                }
            }
        }
        let stay = |slot: &mut Slot| (slot.pool != Slot::NONE.pool).then(|| std::mem::replace(slot, Slot::NONE));
        let gradients = slots.iter_mut().filter_map(stay).collect();
        self.slots = slots;
        gradients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::SMALL_PAGE;
    use crate::timeline::Phase;

    const MIB: u64 = 1 << 20;

    fn trace(lives: &[(u64, usize, usize)]) -> Trace {
        let one = |&(size, birth, death): &(u64, usize, usize)| Allocation {
            size: Bytes(size),
            birth,
            death,
            owner: Owner::Temporaries,
            phase: Phase::Forward,
            made_by: "test",
        };
        let timeline = Timeline { allocations: lives.iter().map(one).collect(), ..Timeline::default() };
        Trace {
            timeline,
            parameters: vec![],
            flat: vec![],
            weights: Bytes(0),
            gradients: Bytes(0),
            reads: 0,
            cost: Default::default(),
        }
    }

    /// Returns the memory with pages that the largest allocation fills.
    fn reserved(lives: &[(u64, usize, usize)]) -> u64 {
        trace(lives).reserved_with_page(Bytes(0), StepMemory::default()).0 - OUTSIDE_POOLS
    }

    #[test]
    fn page_has_one_mib_of_slack_and_is_reused() {
        assert_eq!(reserved(&[(10 * MIB, 0, 1)]), 11 * MIB);
        assert_eq!(reserved(&[(10 * MIB, 0, 1), (10 * MIB, 1, 2)]), 11 * MIB);
        assert_eq!(reserved(&[(10 * MIB, 0, 2), (10 * MIB, 1, 2)]), 22 * MIB);
    }

    #[test]
    fn an_update_in_flat_tensors_holds_weights_gradients_and_state_once_more_at_most() {
        let flat = Trace { flat: vec![Bytes(10 * MIB)], ..trace(&[]) };
        let reserved = |state_bits, micro_batches| {
            let step = StepMemory { state_bits, micro_batches, ..StepMemory::default() };
            flat.reserved_with_page(Bytes(0), step).0 - OUTSIDE_POOLS
        };
        for micro_batches in [1, 2, 7] {
            // Weights, gradients, two running means. In the first step the new weights are beside the old, and one mean in the gradients.
            assert_eq!(reserved(64, micro_batches), 44 * MIB);
            assert_eq!(reserved(0, micro_batches), 33 * MIB);
        }
    }

    #[test]
    fn small_allocations_have_their_own_pages() {
        assert_eq!(reserved(&[(4096, 0, 1), (10 * MIB, 0, 1)]), SMALL_PAGE + 11 * MIB);
    }

    /// The next batch is sent while the gradients are there, and lies in the middle of what is free after the update.
    #[test]
    fn the_next_batch_may_cost_a_page() {
        let reserved = |large, prefetch| {
            let mut trace = Trace { flat: vec![Bytes(3 * MIB)], ..trace(&[(2 * MIB, 0, 3), (large * MIB, 1, 3)]) };
            trace.timeline.allocations[0].owner = Owner::Batch;
            let step = StepMemory { prefetch: Bytes(prefetch), state_bits: 64, ..StepMemory::default() };
            trace.reserved_with_page(Bytes(24 * MIB), step).0 - OUTSIDE_POOLS
        };
        let both = |large| [0, 2 * MIB].map(|prefetch| reserved(large, prefetch) / (25 * MIB));
        assert_eq!([10, 11, 13].map(both), [[1, 1], [1, 2], [2, 2]]);
    }

    #[test]
    fn first_large_enough_hole_is_taken_and_holes_merge() {
        // Both halves of a page are freed, and the whole fits again.
        let lives = [(10 * MIB, 0, 1), (5 * MIB, 2, 4), (5 * MIB, 3, 4), (10 * MIB, 5, 6)];
        assert_eq!(reserved(&lives), 11 * MIB);
        // One half stays, so the whole needs another page.
        let lives = [(10 * MIB, 0, 1), (5 * MIB, 2, 4), (5 * MIB, 3, 9), (10 * MIB, 5, 6)];
        assert_eq!(reserved(&lives), 22 * MIB);
    }

    #[test]
    fn other_lengths_make_pages_larger() {
        let trace = trace(&[(10 * MIB, 0, 2), (10 * MIB, 1, 2)]);
        assert_eq!(trace.reserved_with_page(Bytes(21 * MIB), StepMemory::default()).0 - OUTSIDE_POOLS, 22 * MIB);
        assert_eq!(trace.largest(), Bytes(10 * MIB));
    }

    #[test]
    fn part_of_each_page_stays_free() {
        // Two allocations fill 50 of 51 parts.
        let trace = trace(&[(50 * MIB, 0, 2), (50 * MIB, 1, 2)]);
        let pages = |page| trace.reserved_with_page(Bytes(page * MIB), StepMemory::default()).0 / (page * MIB);
        assert_eq!((pages(100), pages(103)), (2, 1));
    }

    #[test]
    fn chosen_page_never_takes_more_than_one_that_the_largest_tensor_fills() {
        for seed in 0..40_u64 {
            let mut state = seed + 1;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let lives: Vec<_> =
                (0..300).map(|birth| (100_000 * (1 + draw(80)), birth, birth + 1 + draw(90) as usize)).collect();
            let trace = trace(&lives);
            let step = StepMemory { micro_batches: 2, ..StepMemory::default() };
            let filled = trace.reserved_with_page(trace.largest(), step);
            for allocation in [trace.largest(), Bytes(trace.largest().0 * 3), Bytes(u64::MAX)] {
                let page = trace.page(step, allocation);
                assert!((trace.largest()..=allocation).contains(&page), "seed {seed}: {page}");
                assert!(trace.reserved_with_page(page, step) <= filled, "seed {seed}");
            }
            assert!(trace.reserved(step) <= filled);
        }
    }

    #[test]
    fn limits_decide_as_the_whole_run_does() {
        for seed in 1..60_usize {
            let sizes =
                |index: usize| [4_096, 60_000, 70_000, 900_000, 5_000_000, 9_000_000][(index * 11 + seed * 5) % 6];
            let lives: Vec<_> = (0..200).map(|birth| (sizes(birth), birth, birth + 1 + birth * seed % 60)).collect();
            let mut trace = trace(&lives);
            for (index, one) in trace.timeline.allocations.iter_mut().enumerate() {
                match index * seed % 9 {
                    0 => (one.owner, one.birth, one.death) = (Owner::Weights, 0, 300),
                    1 => (one.owner, one.death) = (Owner::Gradients, 300),
                    2 if index < 30 => (one.owner, one.birth) = (Owner::Batch, 0),
                    _ => {}
                }
            }
            trace.parameters = vec![1_000, 200_000, 2_000_000];
            let (micro_batches, state_bits) = (1 + (seed % 2) as u32, [0, 16, 64][seed % 3]);
            let step =
                StepMemory { micro_batches, state_bits, prefetch: Bytes(seed as u64 % 2), ..StepMemory::default() };
            for page in [0, 12 * MIB, 40 * MIB] {
                let page = Bytes(page);
                let whole = trace.reserved_within(page, step, None, Bytes(u64::MAX));
                for hundredths in [10, 60, 85, 95, 99, 100, 101] {
                    let limit = Bytes(whole.0 * hundredths / 100);
                    let found = trace.reserved_within(page, step, None, limit);
                    assert_eq!(found > limit, whole > limit, "seed {seed}, page {page}, limit {limit}: {found}");
                }
            }
        }
    }

    #[test]
    fn memory_beside_the_pages_may_be_known_before() {
        for seed in 1..40_u64 {
            let sizes = |index: usize| [4_096, 60_000, 70_000, 900_000, 5_000_000][(index * 7 + seed as usize * 3) % 5];
            let lives: Vec<_> =
                (0..200).map(|birth| (sizes(birth), birth, birth + 1 + birth * seed as usize % 60)).collect();
            let mut trace = trace(&lives);
            trace.timeline.allocations[..5].iter_mut().for_each(|one| (one.owner, one.birth) = (Owner::Batch, 0));
            let step = StepMemory { micro_batches: 2, prefetch: Bytes(seed % 2), ..StepMemory::default() };
            trace.with_run(|run| {
                let known = PoolRun { beside_pages: Some(run.beside_pages(step)), ..*run };
                for page in [0, 6 * MIB, 40 * MIB] {
                    let [whole, parts] =
                        [run, &known].map(|run| run.reserved_within(Bytes(page), step, None, Bytes(u64::MAX)));
                    assert_eq!(whole, parts, "seed {seed}, page {page}");
                }
            });
        }
    }
}
