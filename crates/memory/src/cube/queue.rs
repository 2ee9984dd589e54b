//! The queue of operations that wait until it is clear which of them one kernel computes.
//!
//! Follows the search of `burn-fusion` 0.22.1 (`search`, `stream/execution`). Operations that share tensors form a block.
//! A block begins with a [`Group`], and grows on when its group is complete. Blocks without common tensors wait beside
//! each other, so a sum may run after operations that were called later. When no block can grow its group, or there are
//! too many of them, the blocks run: first the operations of its group, then what is left, in blocks of its own.

use std::rc::Rc;

use plimsoll_tape::ir::{OperationIr, TensorId, TensorStatus};
use rustc_hash::{FxHashMap, FxHashSet};

use super::group::{Group, can_start};

/// Largest number of blocks that wait beside each other (`BeamSearchConfig`).
const BLOCKS_MAX: usize = 5;

/// What runs next.
#[derive(Debug)]
pub(super) enum Work {
    /// One kernel computes the operations of the group.
    Fused(Box<Group>),
    /// Each of these operations is a kernel of its own.
    Alone(Vec<usize>),
}

impl Work {
    /// Returns the indices of the operations.
    fn members(&self) -> &[usize] {
        match self {
            Self::Fused(group) => group.members(),
            Self::Alone(members) => members,
        }
    }
}

/// Tensors of an operation. To ask the operation for them takes memory each time, and a search asks often.
#[derive(Debug)]
pub(super) struct Tensors {
    /// Inputs; `true` for each that the operation uses up.
    pub(super) inputs: Vec<(TensorId, bool)>,
    pub(super) outputs: Vec<TensorId>,
}

impl Tensors {
    /// Returns the tensors of `operation`.
    pub(super) fn of(operation: &OperationIr) -> Self {
        let inputs = operation.inputs().map(|input| (input.id, input.status == TensorStatus::ReadWrite)).collect();
        Self { inputs, outputs: operation.outputs().map(|output| output.id).collect() }
    }
}

/// Facts about a recording that decide which operations run together.
#[derive(Clone, Debug)]
pub(super) struct Recorded<'a> {
    pub(super) operations: &'a [OperationIr],
    /// Tensors of each operation.
    pub(super) tensors: Rc<[Tensors]>,
    /// Maps each tensor to the last operation that reads it.
    pub(super) last: &'a FxHashMap<TensorId, usize>,
    /// Tensors that outlive the recording.
    pub(super) lasting: &'a FxHashSet<TensorId>,
}

impl Recorded<'_> {
    /// Returns whether no operation outside of `members` reads the tensor, which one of them makes.
    fn stays_inside(&self, id: TensorId, members: &[usize]) -> bool {
        !self.lasting.contains(&id) && self.last.get(&id).is_none_or(|last| members.contains(last))
    }
}

/// Operations that have not run, with the blocks that they form.
#[derive(Debug)]
pub(super) struct Queue<'a> {
    recorded: Recorded<'a>,
    /// Indices of the operations.
    waiting: Vec<usize>,
    /// Number of them that are in a block.
    placed: usize,
    blocks: Vec<Block>,
    is_full: bool,
}

impl<'a> Queue<'a> {
    /// Makes an empty queue.
    pub(super) fn new(recorded: Recorded<'a>) -> Self {
        Self { recorded, waiting: Vec::new(), placed: 0, blocks: Vec::new(), is_full: false }
    }

    /// Adds operation `index`. Returns what runs now.
    pub(super) fn push(&mut self, index: usize) -> Vec<Work> {
        self.waiting.push(index);
        let mut work = Vec::new();
        loop {
            while self.placed < self.waiting.len() && self.still_grows() {
                if self.place(self.waiting[self.placed]) {
                    self.placed += 1;
                }
            }
            if self.still_grows() {
                return work;
            }
            work.extend(self.take_work());
        }
    }

    /// Returns the work for all operations that wait. The queue is empty afterwards.
    pub(super) fn drain(&mut self) -> Vec<Work> {
        let mut work = Vec::new();
        if !self.waiting.is_empty() {
            work = self.take_work();
            // At such a moment the rest is not looked at again.
            work.extend(self.waiting.drain(..).map(|index| Work::Alone(vec![index])));
        }
        (self.placed, self.is_full) = (0, false);
        self.blocks.clear();
        work
    }

    fn still_grows(&self) -> bool {
        !self.is_full && (self.blocks.is_empty() || self.blocks.iter().any(|block| block.is_open))
    }

    /// Takes the work of all blocks out of the queue. What no block settles goes on waiting, in no block.
    fn take_work(&mut self) -> Vec<Work> {
        let work = self.search();
        let done: FxHashSet<usize> = work.iter().flat_map(Work::members).copied().collect();
        self.waiting.retain(|index| !done.contains(index));
        (self.placed, self.is_full) = (0, false);
        self.blocks.clear();
        work
    }

    /// Puts operation `index` into a block. Returns `false` if there are too many blocks.
    fn place(&mut self, index: usize) -> bool {
        let tensors = Rc::clone(&self.recorded.tensors);
        let touched = |blocks: &[Block]| -> Vec<usize> {
            (0..blocks.len()).filter(|&block| blocks[block].has_any_of(&tensors[index])).collect()
        };
        let mut near = touched(&self.blocks);
        if near.len() > 1 {
            if !self.merge(&near) {
                // It reads from several blocks and begins one that depends on them.
                if self.blocks.len() >= BLOCKS_MAX {
                    let all: Vec<usize> = (0..self.blocks.len()).collect();
                    self.merge(&all);
                }
                return self.start_block(index);
            }
            near = touched(&self.blocks);
        }
        if near.is_empty() && self.blocks.len() >= BLOCKS_MAX {
            let all: Vec<usize> = (0..self.blocks.len()).collect();
            self.merge(&all);
            near = touched(&self.blocks);
        }
        if near.is_empty() {
            return self.start_block(index);
        }
        near.into_iter().for_each(|block| self.blocks[block].register(index, &self.recorded));
        true
    }

    /// Begins a block with operation `index`. Returns `false` if there are too many blocks.
    fn start_block(&mut self, index: usize) -> bool {
        self.is_full = self.blocks.len() >= BLOCKS_MAX;
        if !self.is_full {
            let mut block = Block::default();
            block.register(index, &self.recorded);
            self.blocks.push(block);
        }
        !self.is_full
    }

    /// Merges the blocks `which` as far as possible. Returns whether one block is left of them.
    fn merge(&mut self, which: &[usize]) -> bool {
        let order = Order::of(&self.blocks);
        // Each with the numbers of the blocks that it consists of.
        let (mut chosen, mut others) = (Vec::new(), Vec::new());
        for (number, block) in std::mem::take(&mut self.blocks).into_iter().enumerate() {
            match which.contains(&number) {
                true => chosen.push((block, vec![number])),
                false => others.push(block),
            }
        }
        let mut merged: Vec<(Block, Vec<usize>)> = Vec::new();
        for mut new in chosen {
            // Each success may make another one possible.
            while let Some((place, both)) = merged.iter().enumerate().find_map(|(place, old)| {
                let both = order.can_merge(&old.1, &new.1).then(|| self.merged(&old.0, &new.0)).flatten()?;
                Some((place, both))
            }) {
                let (_, mut numbers) = merged.remove(place);
                numbers.extend(new.1);
                new = (both, numbers);
            }
            merged.push(new);
        }
        let is_one = merged.len() == 1;
        others.extend(merged.into_iter().map(|(block, _)| block));
        others.sort_by_key(Block::start);
        self.blocks = others;
        is_one
    }

    /// Merges two blocks, if the group of one of them takes all operations of the other.
    fn merged(&self, first: &Block, second: &Block) -> Option<Block> {
        let one_way = |base: &Block, other: &Block| {
            if !base.is_open {
                return None;
            }
            let mut group = base.group.clone();
            let operations = self.recorded.operations;
            let fits = other.members.iter().all(|&index| group.takes(&operations[index], index));
            if !fits || !self.is_valid_order(base.members.iter().chain(&other.members).copied()) {
                return None;
            }
            let mut both = base.clone();
            both.add_tensors_of(other);
            (both.settled, both.group) = (both.members.len(), group);
            Some(both)
        };
        one_way(first, second).or_else(|| one_way(second, first))
    }

    /// Returns whether each operation runs after those that make its inputs, and before those that use them up.
    fn is_valid_order(&self, order: impl Iterator<Item = usize> + Clone) -> bool {
        let tensors = &self.recorded.tensors;
        let mut missing: FxHashSet<TensorId> =
            order.clone().flat_map(|index| &tensors[index].outputs).copied().collect();
        let mut used_up = FxHashSet::default();
        for index in order {
            if tensors[index].inputs.iter().any(|(id, _)| missing.contains(id) || used_up.contains(id)) {
                return false;
            }
            used_up.extend(tensors[index].inputs.iter().filter(|(_, is_last)| *is_last).map(|(id, _)| *id));
            tensors[index].outputs.iter().for_each(|id| {
                missing.remove(id);
            });
        }
        true
    }

    /// Finds the work of the blocks, in an order in which it can run.
    fn search(&mut self) -> Vec<Work> {
        if self.blocks.len() > 1 {
            let all: Vec<usize> = (0..self.blocks.len()).collect();
            self.merge(&all);
        }
        let placed = self.waiting[..self.placed].to_vec();
        let order = Order::of(&self.blocks).sorted();
        if order.len() < self.blocks.len() {
            return vec![Work::Alone(placed)];
        }
        let mut work: Vec<Work> = order.into_iter().map(|number| self.blocks[number].work(&self.recorded)).collect();
        let mut done: FxHashSet<usize> = work.iter().flat_map(Work::members).copied().collect();
        let end = placed.iter().rposition(|index| done.contains(index)).map_or(0, |place| place + 1);
        // What a block left, before something that runs now, is searched again.
        loop {
            let left: Vec<usize> = placed[..end].iter().copied().filter(|index| !done.contains(index)).collect();
            if left.is_empty() {
                break;
            }
            let mut again = Queue::new(self.recorded.clone());
            again.waiting = left;
            while again.placed < again.waiting.len() && again.place(again.waiting[again.placed]) {
                again.placed += 1;
            }
            let found = again.search();
            done.extend(found.iter().flat_map(Work::members).copied());
            work.extend(found);
        }
        self.in_order(work)
    }

    /// Sorts work so that everything runs after what it depends on, and otherwise by the time of its first operation. If
    /// that cannot be, each operation runs alone.
    fn in_order(&self, work: Vec<Work>) -> Vec<Work> {
        let blocks: Vec<Block> = work
            .iter()
            .map(|one| {
                let mut block = Block { is_open: false, ..Block::default() };
                one.members().iter().for_each(|&index| block.register(index, &self.recorded));
                block
            })
            .collect();
        let order = Order::of(&blocks).sorted();
        let flat = order.iter().flat_map(|&place| work[place].members()).copied();
        if order.len() < work.len() || !self.is_valid_order(flat) {
            let mut members: Vec<usize> = work.iter().flat_map(Work::members).copied().collect();
            members.sort_unstable();
            return vec![Work::Alone(members)];
        }
        let mut work: Vec<Option<Work>> = work.into_iter().map(Some).collect();
        order.into_iter().filter_map(|place| work[place].take()).collect()
    }
}

/// Operations that share tensors, of which the first may form a group.
#[derive(Clone, Debug)]
struct Block {
    members: Vec<usize>,
    group: Group,
    /// Whether the group can grow.
    is_open: bool,
    /// Number of operations until the group was complete, with the one that did not fit.
    settled: usize,
    made: FxHashSet<TensorId>,
    /// Tensors of other blocks that are read.
    read: FxHashSet<TensorId>,
    /// Tensors that are used up.
    freed: FxHashSet<TensorId>,
}

impl Default for Block {
    fn default() -> Self {
        Self {
            members: Vec::new(),
            group: Group::default(),
            is_open: true,
            settled: 0,
            made: FxHashSet::default(),
            read: FxHashSet::default(),
            freed: FxHashSet::default(),
        }
    }
}

impl Block {
    /// Returns the index of its first operation.
    fn start(&self) -> usize {
        self.members.iter().copied().min().unwrap_or(usize::MAX)
    }

    fn has_any_of(&self, tensors: &Tensors) -> bool {
        let has = |id: TensorId| self.made.contains(&id) || self.read.contains(&id);
        tensors.inputs.iter().any(|(id, _)| has(*id)) || tensors.outputs.iter().any(|id| has(*id))
    }

    fn register(&mut self, index: usize, recorded: &Recorded<'_>) {
        self.members.push(index);
        if self.is_open {
            self.settled = self.members.len();
            self.is_open = self.group.takes(&recorded.operations[index], index);
        }
        let Tensors { inputs, outputs } = &recorded.tensors[index];
        self.read.extend(inputs.iter().map(|(id, _)| *id).filter(|id| !self.made.contains(id)));
        self.freed.extend(inputs.iter().filter(|(_, is_last)| *is_last).map(|(id, _)| *id));
        self.made.extend(outputs);
        outputs.iter().for_each(|id| {
            self.read.remove(id);
        });
    }

    /// Adds the operations of another block, without the group.
    fn add_tensors_of(&mut self, other: &Self) {
        self.members.extend(&other.members);
        self.freed.extend(&other.freed);
        self.made.extend(&other.made);
        self.read.extend(&other.read);
        self.read.retain(|id| !self.made.contains(id));
    }

    /// Returns the first work of the block.
    fn work(&self, recorded: &Recorded<'_>) -> Work {
        if self.group.is_worth_a_kernel(|id| recorded.stays_inside(id, self.group.members())) {
            return Work::Fused(Box::new(self.group.clone()));
        }
        let settled = if self.is_open { self.members.len() } else { self.settled };
        let rest = self.members[settled..].iter().take_while(|&&index| !can_start(&recorded.operations[index]));
        Work::Alone(self.members[..settled].iter().chain(rest).copied().collect())
    }
}

/// Which blocks run after which others.
#[derive(Debug)]
struct Order {
    /// For each block, whether each block has to run before it, also indirectly.
    before: Vec<Vec<bool>>,
    starts: Vec<usize>,
}

impl Order {
    fn of(blocks: &[Block]) -> Self {
        let depends = |later: &Block, earlier: &Block| {
            later.read.iter().any(|id| earlier.made.contains(id))
                || later.freed.iter().any(|id| earlier.read.contains(id) && !earlier.freed.contains(id))
        };
        let count = blocks.len();
        let mut before: Vec<Vec<bool>> = (0..count)
            .map(|later| {
                let is_earlier = |earlier| earlier != later && depends(&blocks[later], &blocks[earlier]);
                (0..count).map(is_earlier).collect()
            })
            .collect();
        for middle in 0..count {
            for later in 0..count {
                if before[later][middle] {
                    let through = before[middle].clone();
                    before[later].iter_mut().zip(through).for_each(|(is_before, through)| *is_before |= through);
                }
            }
        }
        Self { before, starts: blocks.iter().map(Block::start).collect() }
    }

    /// Returns whether two sets of blocks can become one: no third block has to run between them.
    fn can_merge(&self, first: &[usize], second: &[usize]) -> bool {
        (0..self.before.len()).filter(|middle| !first.contains(middle) && !second.contains(middle)).all(|middle| {
            let is_after = |set: &[usize]| set.iter().any(|&earlier| self.before[middle][earlier]);
            let is_before = |set: &[usize]| set.iter().any(|&later| self.before[later][middle]);
            !(is_after(first) && is_before(second) || is_after(second) && is_before(first))
        })
    }

    /// Returns the blocks in an order in which they can run; those of a circle are left out. Of two that can run, the one
    /// that begins first comes first.
    fn sorted(&self) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::new();
        let mut is_done = vec![false; self.starts.len()];
        loop {
            let is_ready = |number: usize| {
                !is_done[number]
                    && self.before[number].iter().zip(&is_done).all(|(&is_before, &done)| !is_before || done)
            };
            let ready = (0..self.starts.len()).filter(|&number| is_ready(number));
            let Some(next) = ready.min_by_key(|&number| self.starts[number]) else { return order };
            order.push(next);
            is_done[next] = true;
        }
    }
}
