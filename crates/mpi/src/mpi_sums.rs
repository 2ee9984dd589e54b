//! Sums that the MPI library carries: on one node by itself, on several inside of each node first, then between them. A node is
//! a group of ranks here.

use std::collections::VecDeque;
use std::mem;

use crate::mpi_calls::{Communicator, MpiCallError, Request};

/// Sums that are under way, in the order in which they began.
pub(crate) struct MpiSums {
    world: Communicator,
    /// Where several nodes have several ranks each.
    levels: Option<Levels>,
    pending: VecDeque<Pending>,
    /// Buffers that are used again: the pages of new ones would cost as much as their sums.
    free: Vec<[Vec<f32>; 2]>,
}

/// The communicators of sums in two levels. MPI wants all ranks of one to make their calls in the same order, and the
/// reductions of later sums begin before earlier ones are broadcast: so each kind of call has its own.
struct Levels {
    /// The ranks of this node, for reductions, and for broadcasts.
    reductions: Communicator,
    broadcasts: Communicator,
    /// The first ranks of all nodes; of no use on another rank.
    firsts: Communicator,
    is_first: bool,
}

/// A sum that is under way.
struct Pending {
    values: Vec<f32>,
    sums: Vec<f32>,
    request: Request,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The values of a node are added.
    Reduction,
    /// The sums of the nodes are added.
    Between,
    /// The last call: the sums go to all ranks.
    Last,
}

impl MpiSums {
    /// Prepares sums between all ranks of `world`: inside of each group first, if there are several, and one has more than one
    /// rank. All ranks make this call.
    pub(crate) fn new(world: Communicator, group: usize) -> Result<Self, MpiCallError> {
        let reductions = world.of_color(group)?;
        let (is_first, local_ranks) = (reductions.rank()? == 0, reductions.ranks()?);
        let sizes = world.gather_number(local_ranks as u64)?;
        // The same on all ranks: in one group all see all, and sizes are those of all.
        let in_levels = local_ranks < world.ranks()? && sizes.into_iter().any(|size| size > 1);
        let levels = match in_levels {
            true => {
                let (broadcasts, firsts) = (world.of_color(group)?, world.of_color(usize::from(is_first))?);
                Some(Levels { reductions, broadcasts, firsts, is_first })
            }
            false => {
                reductions.free();
                None
            }
        };
        Ok(Self { world, levels, pending: VecDeque::new(), free: Vec::new() })
    }

    /// Begins to sum values.
    pub(crate) fn begin(&mut self, own: &[f32]) -> Result<(), MpiCallError> {
        let [mut values, mut sums] = self.free.pop().unwrap_or_default();
        values.clear();
        values.extend_from_slice(own);
        sums.resize(own.len(), 0.0);
        let (from, to) = (&raw const values[..], &raw mut sums[..]);
        // SAFETY: both are kept in `pending` until the request is complete. A vector that moves leaves its numbers where they
        // are.
        let (request, stage) = match &self.levels {
            Some(levels) => (unsafe { levels.reductions.begin_reduce(from, to) }?, Stage::Reduction),
            None => (unsafe { self.world.begin_all_reduce(from, to) }?, Stage::Last),
        };
        self.pending.push_back(Pending { values, sums, request, stage });
        Ok(())
    }

    /// Moves all sums on. If the first is complete, writes it to the start of `out`, and returns its length.
    pub(crate) fn take(&mut self, out: &mut [f32]) -> Result<Option<usize>, MpiCallError> {
        let mut before = None;
        if let Some(levels) = &self.levels {
            for pending in &mut self.pending {
                pending.go_on(levels, before)?;
                before = Some(pending.stage);
            }
        }
        let is_complete = match self.pending.front_mut() {
            Some(first) if first.stage == Stage::Last => first.request.is_complete()?,
            _ => false,
        };
        let Some(Pending { values, sums, .. }) = self.pending.pop_front_if(|_| is_complete) else { return Ok(None) };
        let len = sums.len();
        out[..len].copy_from_slice(&sums);
        self.free.push([values, sums]);
        Ok(Some(len))
    }

    /// Returns whether no sum is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Gives the communicators back. All ranks make this call.
    pub(crate) fn free(&mut self) {
        if let Some(Levels { reductions, broadcasts, firsts, .. }) = self.levels.take() {
            [reductions, broadcasts, firsts].into_iter().for_each(Communicator::free);
        }
    }
}

impl Pending {
    /// Begins the next call if this one is complete. A sum overtakes none that began before it.
    fn go_on(&mut self, levels: &Levels, before: Option<Stage>) -> Result<(), MpiCallError> {
        if self.stage == Stage::Last
            || before.is_some_and(|before| before <= self.stage)
            || !self.request.is_complete()?
        {
            return Ok(());
        }
        // SAFETY: as for the first call, whose request is complete.
        (self.request, self.stage) = match (self.stage, levels.is_first) {
            (Stage::Reduction, true) => {
                mem::swap(&mut self.values, &mut self.sums);
                let (from, to) = (&raw const self.values[..], &raw mut self.sums[..]);
                (unsafe { levels.firsts.begin_all_reduce(from, to) }?, Stage::Between)
            }
            _ => (unsafe { levels.broadcasts.begin_broadcast(&raw mut self.sums[..]) }?, Stage::Last),
        };
        Ok(())
    }
}

impl Drop for MpiSums {
    fn drop(&mut self) {
        // MPI may still read and write these values.
        mem::forget(mem::take(&mut self.pending));
    }
}
