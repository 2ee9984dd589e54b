//! How CubeCL cuts device memory into pages, and so how much of it a run keeps reserved.
//!
//! As `cubecl-server` 0.11.3 does it in `memory_management`: small things lie in pages of their own, and everything else
//! in pages that are as large as the largest allocation so far and a megabyte more. The first hole that is large enough
//! is taken. When an allocation outgrows the pages, larger ones take over, and the old ones go back when they are empty.
//! Other empty pages stay. (Allocations are moved off old pages when the device is nearly full; that is left out, as
//! there are no old pages where pages are laid out for the largest from the start.)

use std::collections::BTreeMap;

use plimsoll_core::Bytes;

use crate::run_memory::StepMemory;
use crate::timeline::{Allocation, Owner, Timeline};
use crate::trace::Trace;

/// The pages of small things.
const SMALL_PAGE: u64 = 8 << 20;
/// The largest thing that is small.
const SMALL_MAX: u64 = 64 << 10;
/// The smallest pages of all else.
const SMALLEST_PAGE: u64 = 2 << 20;
/// What a page has beyond the allocation that it was made for, and what its size is a multiple of.
const SLACK: u64 = 1 << 20;
/// What is reserved beside the pools for the arguments of kernels and for reading values back.
const OUTSIDE_POOLS: u64 = 3 << 20;

impl Trace {
    /// The largest thing that is made. Pages are as large as the largest thing so far, and those of before are of no use
    /// for new things: a run that makes something as large first, and drops it, has pages of one size only. Without that,
    /// a Conformer's pools took up to 1.7 times as much (docs/LOG.md). `plimsoll_train::lay_out` does it.
    pub fn largest(&self) -> Bytes {
        self.timeline.allocations.iter().map(|one| one.size).max().unwrap_or_default()
    }

    /// The most that CubeCL's pools reserve in two steps of a run whose largest piece this is, with pages laid out for
    /// the [`largest`](Self::largest) from the start. The first step makes the optimizer's state, and the second finds it.
    pub fn reserved(&self, step: StepMemory) -> Bytes {
        self.reserved_with_page(self.largest(), step)
    }

    /// The same, with pages laid out for the larger of `largest` and what this piece makes: a run has other lengths too.
    pub fn reserved_with_page(&self, largest: Bytes, step: StepMemory) -> Bytes {
        let mut run = PoolSimulation::default();
        let page = run.reserve(self.largest().max(largest).0);
        run.pools.free(page);
        let weights = run.reserve_all(sizes(&self.timeline, Owner::Weights));
        let changes = changes(&self.timeline);
        let gathered = run.micro_batches(&self.timeline, &changes, step.micro_batches);
        let f32_bits = 8 * size_of::<f32>() as u64;
        // One part of the state is written over the gradients, and the rest beside them; the moved weights beside the old.
        let beside = StepMemory { state_bits: step.state_bits.saturating_sub(f32_bits), ..step };
        let state: Vec<u64> = self.parameters.iter().map(|&values| beside.state_of(values).0).collect();
        run.reserve_all(state);
        run.reserve_all(sizes(&self.timeline, Owner::Weights));
        run.free_all(weights);
        if step.state_bits == 0 {
            run.free_all(gathered);
        }
        // From here on everything is written over what it replaces.
        run.micro_batches(&self.timeline, &changes, step.micro_batches);
        Bytes(run.most + OUTSIDE_POOLS + step.workspace.0 + step.prefetch.0)
    }
}

/// When, whether something is born or dies, and which.
type Change = (usize, bool, usize);

/// What is born and dies in a piece, but for the weights, which are there, and for the deaths of gradients, which stay.
fn changes(piece: &Timeline) -> Vec<Change> {
    let own = |one: &Allocation| one.owner != Owner::Weights && one.birth < one.death;
    let mut changes = Vec::with_capacity(piece.allocations.len() * 2);
    for (index, one) in piece.allocations.iter().enumerate().filter(|(_, one)| own(one)) {
        changes.push((one.birth, true, index));
        if one.owner != Owner::Gradients {
            changes.push((one.death, false, index));
        }
    }
    // What dies makes room for what is born at the same moment.
    changes.sort_unstable();
    changes
}

fn sizes(timeline: &Timeline, owner: Owner) -> impl Iterator<Item = u64> {
    timeline.allocations.iter().filter(move |one| one.owner == owner).map(|one| one.size.0)
}

/// A run as its pools see it.
#[derive(Debug, Default)]
struct PoolSimulation {
    pools: Pools,
    most: u64,
}

impl PoolSimulation {
    fn reserve(&mut self, size: u64) -> Slot {
        let place = self.pools.reserve(size);
        self.most = self.most.max(self.pools.reserved);
        place
    }

    fn reserve_all(&mut self, sizes: impl IntoIterator<Item = u64>) -> Vec<Slot> {
        sizes.into_iter().map(|size| self.reserve(size)).collect()
    }

    fn free_all(&mut self, places: Vec<Slot>) {
        places.into_iter().for_each(|place| self.pools.free(place));
    }

    /// The pieces of a step. Gives the gradients.
    fn micro_batches(&mut self, piece: &Timeline, changes: &[Change], count: u32) -> Vec<Slot> {
        let gathered = self.micro_batch(piece, changes);
        if count > 1 {
            // What comes after the first is added to it.
            let added = self.micro_batch(piece, changes);
            self.free_all(added);
        }
        gathered
    }

    /// A piece without its weights, which are there. Gives the gradients, which outlive it.
    fn micro_batch(&mut self, piece: &Timeline, changes: &[Change]) -> Vec<Slot> {
        let mut places = vec![None; piece.allocations.len()];
        for &(_, is_birth, index) in changes {
            match is_birth {
                true => places[index] = Some(self.reserve(piece.allocations[index].size.0)),
                false => places[index].take().into_iter().for_each(|place| self.pools.free(place)),
            }
        }
        places.into_iter().flatten().collect()
    }
}

/// Where an allocation lies.
#[derive(Clone, Copy, Debug)]
struct Slot {
    pool: usize,
    page: usize,
    start: u64,
    size: u64,
}

/// The pool of small things first; the last one is what everything else is taken from, and those between are left behind.
#[derive(Debug)]
struct Pools {
    pools: Vec<Pool>,
    reserved: u64,
}

impl Default for Pools {
    fn default() -> Self {
        Self { pools: vec![Pool::new(SMALL_PAGE), Pool::new(SMALLEST_PAGE)], reserved: 0 }
    }
}

impl Pools {
    fn reserve(&mut self, size: u64) -> Slot {
        self.give_back();
        let mut pool = if size <= SMALL_MAX { 0 } else { self.pools.len() - 1 };
        if size > self.pools[pool].page_size {
            self.pools.push(Pool::new((size + SLACK).next_multiple_of(SLACK)));
            pool += 1;
        }
        let (page, start, added) = self.pools[pool].reserve(size);
        self.reserved += added;
        Slot { pool, page, start, size }
    }

    fn free(&mut self, place: Slot) {
        self.pools[place.pool].pages[place.page].free(place.start, place.size);
    }

    /// Empty pages of the pools that were left behind.
    fn give_back(&mut self) {
        let last = self.pools.len() - 1;
        for pool in &mut self.pools[1..last] {
            let page_size = pool.page_size;
            for page in pool.pages.iter_mut().filter(|page| page.holes.get(&0) == Some(&page_size)) {
                page.holes.clear();
                page.most = 0;
                self.reserved -= page_size;
            }
        }
    }
}

#[derive(Debug)]
struct Pool {
    page_size: u64,
    pages: Vec<Page>,
}

impl Pool {
    fn new(page_size: u64) -> Self {
        Self { page_size, pages: Vec::new() }
    }

    /// The page, the place on it, and what had to be reserved for it.
    fn reserve(&mut self, size: u64) -> (usize, u64, u64) {
        for (index, page) in self.pages.iter_mut().enumerate() {
            if let Some(start) = page.reserve(size) {
                return (index, start, 0);
            }
        }
        let mut page = Page { holes: BTreeMap::from([(0, self.page_size)]), most: self.page_size };
        let start = page.reserve(size).unwrap_or_default();
        self.pages.push(page);
        (self.pages.len() - 1, start, self.page_size)
    }
}

/// The holes of a page: where they begin, and how long they are.
#[derive(Debug)]
struct Page {
    holes: BTreeMap<u64, u64>,
    /// No hole is longer. It may be shorter: that shows when one is looked for.
    most: u64,
}

impl Page {
    fn reserve(&mut self, size: u64) -> Option<u64> {
        if self.most < size {
            return None;
        }
        let Some((&start, &length)) = self.holes.iter().find(|&(_, &length)| length >= size) else {
            self.most = self.holes.values().copied().max().unwrap_or_default();
            return None;
        };
        self.holes.remove(&start);
        if length > size {
            self.holes.insert(start + size, length - size);
        }
        Some(start)
    }

    fn free(&mut self, mut start: u64, mut size: u64) {
        if let Some(after) = self.holes.remove(&(start + size)) {
            size += after;
        }
        if let Some((&before, &length)) = self.holes.range(..start).next_back()
            && before + length == start
        {
            self.holes.remove(&before);
            (start, size) = (before, length + size);
        }
        self.most = self.most.max(size);
        self.holes.insert(start, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        Trace { timeline, parameters: vec![], weights: Bytes(0), gradients: Bytes(0), cost: Default::default() }
    }

    fn reserved(lives: &[(u64, usize, usize)]) -> u64 {
        trace(lives).reserved(StepMemory::default()).0 - OUTSIDE_POOLS
    }

    #[test]
    fn a_page_has_a_megabyte_of_room_and_is_used_again() {
        assert_eq!(reserved(&[(10 * MIB, 0, 1)]), 11 * MIB);
        assert_eq!(reserved(&[(10 * MIB, 0, 1), (10 * MIB, 1, 2)]), 11 * MIB);
        assert_eq!(reserved(&[(10 * MIB, 0, 2), (10 * MIB, 1, 2)]), 22 * MIB);
    }

    #[test]
    fn small_things_have_pages_of_their_own() {
        assert_eq!(reserved(&[(4096, 0, 1), (10 * MIB, 0, 1)]), SMALL_PAGE + 11 * MIB);
    }

    #[test]
    fn the_first_hole_that_is_large_enough_is_taken_and_holes_grow_together() {
        // Two halves of a page go, and the whole fits where they were.
        let lives = [(10 * MIB, 0, 1), (5 * MIB, 2, 4), (5 * MIB, 3, 4), (10 * MIB, 5, 6)];
        assert_eq!(reserved(&lives), 11 * MIB);
        // One half stays, and the whole needs another page.
        let lives = [(10 * MIB, 0, 1), (5 * MIB, 2, 4), (5 * MIB, 3, 9), (10 * MIB, 5, 6)];
        assert_eq!(reserved(&lives), 22 * MIB);
    }

    #[test]
    fn pages_that_grow_leave_old_ones_behind() {
        let mut pools = Pools::default();
        let first = pools.reserve(MIB);
        let large = pools.reserve(10 * MIB);
        assert_eq!(pools.reserved, 13 * MIB);
        // There is room on the old page, and nobody takes it.
        let second = pools.reserve(6 * MIB);
        assert_eq!((second.pool, pools.reserved), (large.pool, 24 * MIB));
        pools.free(first);
        pools.reserve(4096);
        assert_eq!(pools.reserved, SMALL_PAGE + 22 * MIB, "an old page goes back when it is empty");
    }

    #[test]
    fn another_length_makes_pages_larger() {
        let trace = trace(&[(10 * MIB, 0, 2), (10 * MIB, 1, 2)]);
        assert_eq!(trace.reserved_with_page(Bytes(20 * MIB), StepMemory::default()).0 - OUTSIDE_POOLS, 21 * MIB);
        assert_eq!(trace.largest(), Bytes(10 * MIB));
    }
}
