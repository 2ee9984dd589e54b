//! The books of a GPU's memory: who has which part of it, and what does not fit.

use std::collections::BTreeMap;

use crate::addresses::Addresses;
use crate::errors::{Answer, INVALID_VALUE, OUT_OF_MEMORY};
use crate::failures::FailureCounter;
use crate::scenario::{GpuFacts, Scenario};
use crate::size::round_up;
use crate::slots::{SLOT, SharedGrain};
use crate::timeline::Timeline;

mod tally;
#[cfg(test)]
mod tests;

pub(crate) use tally::Tally;

/// Books of a GPU's memory.
#[derive(Debug)]
pub(crate) struct Books {
    capacity: u64,
    context_size: u64,
    grain: u64,
    pool_grain: u64,
    addresses: Addresses,
    pool_addresses: Addresses,
    /// Live allocations by address.
    blocks: BTreeMap<u64, Block>,
    /// Grains that small allocations share, by address.
    shared: BTreeMap<u64, SharedGrain>,
    /// Other processes from an allocation on: its number and their memory.
    others_at: Vec<(u64, u64)>,
    failures: FailureCounter,
    /// Memory that the pool keeps when the GPU is waited for.
    pool_keep: u64,
    /// Sizes and counts.
    pub(crate) tally: Tally,
    /// The memory over time.
    pub(crate) timeline: Timeline,
}

/// Live allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    /// Size that the program asked for.
    pub(crate) size: u64,
    place: Place,
}

/// Where an allocation lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Whole grains of this size.
    Whole(u64),
    /// Slots of the shared grain at this address.
    Shared(u64),
    /// The pool, of which it takes this size.
    Pool(u64),
}

/// Change of the memory, for the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// What happened.
    pub(crate) kind: &'static str,
    /// Address of the allocation, or zero.
    pub(crate) address: u64,
    /// Size that the program asked for.
    pub(crate) asked: u64,
    /// Size by which the memory that the GPU has given away has grown, or would have.
    pub(crate) granted: u64,
}

impl Books {
    /// Opens the books of the GPU with this number.
    pub(crate) fn new(number: usize, facts: &GpuFacts, scenario: &Scenario) -> Self {
        let others = facts.others.min(facts.memory);
        let [addresses, pool_addresses] = Addresses::of_grains_and_pool(number);
        Self {
            capacity: facts.memory,
            context_size: facts.context,
            grain: scenario.grain,
            pool_grain: scenario.pool_grain,
            addresses,
            pool_addresses,
            blocks: BTreeMap::new(),
            shared: BTreeMap::new(),
            others_at: facts.others_at.clone(),
            failures: FailureCounter::new(facts.allocation_failures.clone()),
            pool_keep: 0,
            tally: Tally { others, peak_held: others, ..Tally::default() },
            timeline: Timeline::new(),
        }
    }

    /// Returns the memory of the GPU.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the memory that this process and others have of the GPU.
    pub(crate) fn held(&self) -> u64 {
        self.tally.others + self.own()
    }

    /// Returns the memory that this process has of the GPU.
    pub(crate) fn own(&self) -> u64 {
        let Tally { context, code, stacks, granted, pool_reserved, .. } = self.tally;
        context + round_up(code, self.grain) + stacks + granted + pool_reserved
    }

    /// Returns the memory that is free.
    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.held())
    }

    /// Returns the number of live allocations.
    pub(crate) fn n_live(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the live allocation in which an address lies, with its start.
    pub(crate) fn block_at(&self, address: u64) -> Option<(u64, Block)> {
        let (start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.size).then_some((*start, *block))
    }

    /// Allocates memory as `cuMemAlloc` does: whole grains, or slots of a shared grain up to half of one.
    pub(crate) fn allocate(&mut self, size: u64) -> Answer<(u64, Change)> {
        self.begin_allocation(size)?;
        if size <= self.grain / 2 { self.allocate_slots(size) } else { self.allocate_grains(size) }
    }

    /// Allocates memory as `cuMemAllocAsync` does: from a pool, which takes grains of its own from the GPU.
    pub(crate) fn allocate_from_pool(&mut self, size: u64) -> Answer<(u64, Change)> {
        self.begin_allocation(size)?;
        let room = round_up(size, if size > self.grain / 2 { self.grain } else { SLOT });
        let reserved = round_up(self.tally.pool_used.saturating_add(room), self.pool_grain);
        let more = reserved.saturating_sub(self.tally.pool_reserved);
        let address = if more > self.free() { None } else { self.pool_addresses.take(room) };
        let address = address.ok_or_else(|| self.refuse(size))?;
        self.tally.pool_used += room;
        self.tally.pool_reserved += more;
        Ok((address, self.enter("pool", address, Block { size, place: Place::Pool(room) }, more)))
    }

    /// Frees the allocation that starts at an address, and returns it with its size.
    pub(crate) fn release(&mut self, address: u64) -> Answer<(u64, Change)> {
        let block = self.blocks.remove(&address).ok_or(INVALID_VALUE)?;
        let granted = match block.place {
            Place::Whole(room) => {
                self.addresses.give_back(address, room);
                self.tally.granted -= room;
                room
            }
            Place::Pool(room) => {
                self.pool_addresses.give_back(address, room);
                self.tally.pool_used -= room;
                0
            }
            Place::Shared(grain) => self.release_slots(grain, address, block.size),
        };
        self.tally.asked -= block.size;
        self.tally.n_frees += 1;
        self.note();
        Ok((block.size, Change { kind: "free", address, asked: block.size, granted }))
    }

    /// Gives the memory of the pool back that it neither uses nor keeps, as waiting for the GPU does.
    pub(crate) fn trim_pool(&mut self) {
        self.trim_pool_to(self.pool_keep);
    }

    /// Gives the memory of the pool back above a size, as far as it is not used.
    pub(crate) fn trim_pool_to(&mut self, keep: u64) {
        let least = round_up(self.tally.pool_used.max(keep), self.pool_grain);
        if least < self.tally.pool_reserved {
            self.tally.pool_reserved = least;
            self.note();
        }
    }

    /// Returns the memory that the pool keeps.
    pub(crate) fn pool_keep(&self) -> u64 {
        self.pool_keep
    }

    /// Sets the memory that the pool keeps.
    pub(crate) fn set_pool_keep(&mut self, size: u64) {
        self.pool_keep = size;
    }

    /// Takes the memory of a context.
    pub(crate) fn open_context(&mut self) -> Answer<Change> {
        if self.tally.context == 0 && self.context_size > self.free() {
            return Err(OUT_OF_MEMORY);
        }
        self.tally.context = self.context_size;
        self.note();
        Ok(Change { kind: "context", address: 0, asked: 0, granted: self.context_size })
    }

    /// Gives the memory of a context back with all that is in it, and returns the addresses that were allocated.
    pub(crate) fn close_context(&mut self) -> Vec<(u64, u64)> {
        let live: Vec<u64> = self.blocks.keys().copied().collect();
        let freed = live.iter().filter_map(|address| Some((*address, self.release(*address).ok()?.0))).collect();
        (self.tally.context, self.tally.code, self.tally.stacks, self.tally.pool_reserved) = (0, 0, 0, 0);
        self.note();
        freed
    }

    /// Takes memory for the code of a module and for stacks of this size in all.
    pub(crate) fn load_code(&mut self, code: u64, stacks: u64) -> Answer<Change> {
        let stacks = round_up(stacks, self.grain).max(self.tally.stacks);
        let more = round_up(self.tally.code + code, self.grain) - round_up(self.tally.code, self.grain) + stacks
            - self.tally.stacks;
        if more > self.free() {
            return Err(OUT_OF_MEMORY);
        }
        self.tally.code += code;
        self.tally.stacks = stacks;
        self.note();
        Ok(Change { kind: "module", address: 0, asked: code, granted: more })
    }

    /// Gives the memory of the code of a module back.
    pub(crate) fn unload_code(&mut self, code: u64) {
        self.tally.code = self.tally.code.saturating_sub(code);
        self.note();
    }

    /// Sets the peaks to what there is now.
    pub(crate) fn reset_peaks(&mut self) {
        let (held, own) = (self.held(), self.own());
        self.tally.reset_peaks(held, own);
    }

    /// Begins an allocation: other processes come and go, and failures of the scenario happen.
    fn begin_allocation(&mut self, size: u64) -> Answer {
        if size == 0 {
            return Err(INVALID_VALUE);
        }
        let (number, fails) = self.failures.count(size);
        if let Some((_, others)) = self.others_at.iter().rfind(|(at, _)| *at == number) {
            // Other processes get no memory that this one has.
            self.tally.others = (*others).min(self.capacity.saturating_sub(self.own()));
            self.note();
        }
        if fails {
            self.tally.n_injected += 1;
            return Err(self.refuse(size));
        }
        Ok(())
    }

    fn refuse(&mut self, size: u64) -> i32 {
        self.tally.n_refused += 1;
        self.tally.largest_refused = self.tally.largest_refused.max(size);
        OUT_OF_MEMORY
    }

    /// Takes whole grains.
    fn take(&mut self, room: u64, size: u64) -> Answer<u64> {
        let address = if room > self.free() { None } else { self.addresses.take(room) };
        address.ok_or_else(|| self.refuse(size))
    }

    fn allocate_grains(&mut self, size: u64) -> Answer<(u64, Change)> {
        let room = round_up(size, self.grain);
        let address = self.take(room, size)?;
        self.tally.granted += room;
        Ok((address, self.enter("alloc", address, Block { size, place: Place::Whole(room) }, room)))
    }

    fn allocate_slots(&mut self, size: u64) -> Answer<(u64, Change)> {
        let found = self.shared.iter_mut().find_map(|(grain, slots)| Some((*grain, slots.take(size)?)));
        let (grain, offset, granted) = match found {
            Some((grain, offset)) => (grain, offset, 0),
            None => {
                let grain = self.take(self.grain, size)?;
                self.tally.granted += self.grain;
                let slots = self.shared.entry(grain).or_insert_with(|| SharedGrain::new(self.grain));
                let offset = slots.take(size).expect("half of an empty grain is free");
                (grain, offset, self.grain)
            }
        };
        let address = grain + offset;
        Ok((address, self.enter("alloc", address, Block { size, place: Place::Shared(grain) }, granted)))
    }

    /// Frees slots, and returns what the GPU gets back: the grain when nothing else is in it.
    fn release_slots(&mut self, grain: u64, address: u64, size: u64) -> u64 {
        let slots = self.shared.get_mut(&grain).expect("a grain is shared while an allocation is in it");
        slots.give_back(address - grain, size);
        if !slots.is_empty() {
            return 0;
        }
        self.shared.remove(&grain);
        self.addresses.give_back(grain, self.grain);
        self.tally.granted -= self.grain;
        self.grain
    }

    fn enter(&mut self, kind: &'static str, address: u64, block: Block, granted: u64) -> Change {
        self.blocks.insert(address, block);
        self.tally.asked += block.size;
        self.tally.n_allocations += 1;
        self.note();
        Change { kind, address, asked: block.size, granted }
    }

    fn note(&mut self) {
        let (held, own) = (self.held(), self.own());
        self.tally.note_peaks(held, own);
        self.timeline.add(self.tally.asked, held);
    }
}
