//! Sorts the packets that arrive by their sender and their kind, until an operation asks for them.

use std::collections::VecDeque;

use plimsoll_core::CollectiveError;

use crate::packet::{Header, Kind, Packet};
use crate::pool::Pool;
use crate::transport::Transport;

/// A transport with the packets that have arrived and were not read yet.
pub(crate) struct Post<T> {
    transport: T,
    pool: Pool,
    inbox: Vec<[VecDeque<(Header, Packet)>; SORTED.len()]>,
    moved: u64,
}

/// Kinds that wait in the inbox for an operation.
const SORTED: [Kind; 2] = [Kind::Gather, Kind::Begin];

/// What arrived for the heartbeat and the failures, which no operation asks for.
#[derive(Default)]
pub(crate) struct Arrived {
    /// Whether anything came from the watched rank.
    pub(crate) heard: bool,
    pub(crate) reports: Vec<(usize, Header, Packet)>,
}

impl<T: Transport> Post<T> {
    pub(crate) fn new(transport: T) -> Self {
        let inbox = (0..transport.ranks()).map(|_| Default::default()).collect();
        Self { transport, pool: Pool::default(), inbox, moved: 0 }
    }

    pub(crate) fn rank(&self) -> usize {
        self.transport.rank()
    }

    pub(crate) fn ranks(&self) -> usize {
        self.transport.ranks()
    }

    /// Lists the other ranks, from the next one on. If each rank sends in this order, no rank receives from all others
    /// at the same time.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<T> {
        let (rank, ranks) = (self.rank(), self.ranks());
        (1..ranks).map(move |step| (rank + step) % ranks)
    }

    /// Returns a number that grows whenever an operation sends or takes a packet.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// Returns the number of packets whose sending is not complete.
    pub(crate) fn outstanding(&self) -> usize {
        self.transport.outstanding()
    }

    pub(crate) fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Begins to send a packet of an operation.
    pub(crate) fn send(&mut self, to: usize, packet: Packet) -> Result<(), CollectiveError> {
        self.moved += 1;
        self.send_aside(to, packet)
    }

    /// Begins to send a packet that belongs to no operation, so that it does not count as progress of one.
    pub(crate) fn send_aside(&mut self, to: usize, packet: Packet) -> Result<(), CollectiveError> {
        self.transport.send(to, packet, &mut self.pool)
    }

    /// Begins to sum values by the library.
    pub(crate) fn begin_sum(&mut self, values: &[f32]) -> Result<(), CollectiveError> {
        self.moved += 1;
        self.transport.begin_sum(values)
    }

    /// Writes the oldest sums of the library to the start of `out`, if they are complete, and returns their number.
    pub(crate) fn take_sum(&mut self, out: &mut [f32]) -> Result<Option<usize>, CollectiveError> {
        let sums = self.transport.take_sum(out)?;
        self.moved += u64::from(sums.is_some());
        Ok(sums)
    }

    /// Returns whether a sum of the library has begun and was not taken.
    pub(crate) fn is_summing(&self) -> bool {
        self.transport.is_summing()
    }

    /// Sorts all packets that have arrived.
    pub(crate) fn pump(&mut self, watched: Option<usize>) -> Result<Arrived, CollectiveError> {
        let mut arrived = Arrived::default();
        while let Some((from, packet)) = self.transport.receive(&mut self.pool)? {
            arrived.heard |= watched == Some(from);
            let Some(header) = Header::read(&packet) else {
                let cause = format!("sent a packet of {} bytes that has no header of this program", packet.len());
                return Err(CollectiveError { rank: from, cause });
            };
            match SORTED.iter().position(|&kind| kind == header.kind) {
                Some(sorted) => self.inbox[from][sorted].push_back((header, packet)),
                None => arrived.reports.push((from, header, packet)),
            }
        }
        Ok(arrived)
    }

    /// Returns whether rank `from` has sent a packet of this kind for the operation.
    pub(crate) fn has(&self, from: usize, kind: Kind, operation: u64) -> bool {
        self.queue(from, kind).front().is_some_and(|(header, _)| header.operation == operation)
    }

    /// Takes the next packet of this kind from rank `from`, if it has arrived and belongs to the operation.
    pub(crate) fn take(&mut self, from: usize, kind: Kind, operation: u64) -> Option<(Header, Packet)> {
        if !self.has(from, kind, operation) {
            return None;
        }
        self.moved += 1;
        let sorted = SORTED.iter().position(|&sorted| sorted == kind)?;
        self.inbox[from][sorted].pop_front()
    }

    /// Finds a rank that takes part in this operation with packets of another kind: it has called another method.
    pub(crate) fn stray(&self, operation: u64, expected: &[Kind]) -> Option<CollectiveError> {
        let other = SORTED.into_iter().filter(|kind| !expected.contains(kind));
        let mut strays = other.flat_map(|kind| (0..self.ranks()).map(move |from| (from, kind)));
        let (rank, kind) = strays.find(|&(from, kind)| self.has(from, kind, operation))?;
        let (theirs, own) = (kind.operation(), expected.first().map_or("", |kind| kind.operation()));
        let cause = format!("called `{theirs}` as operation {operation}, where this replica called `{own}`");
        Some(CollectiveError { rank, cause })
    }

    /// Returns whether the transport ends well only together with all others.
    pub(crate) fn ends_together(&self) -> bool {
        self.transport.ends_together()
    }

    /// Ends the transport.
    pub(crate) fn close(&mut self, clean: bool) {
        self.transport.close(clean);
    }

    /// Returns the transport, for work that needs its library.
    #[cfg(feature = "mpi")]
    pub(crate) fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    fn queue(&self, from: usize, kind: Kind) -> &VecDeque<(Header, Packet)> {
        let sorted = SORTED.iter().position(|&sorted| sorted == kind);
        &self.inbox[from][sorted.expect("only operations ask for packets, and only for theirs")]
    }
}
