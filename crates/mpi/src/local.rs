//! A transport between threads of one process.

use std::sync::mpsc::{Receiver, Sender, channel};

use plimsoll_core::CollectiveError;

use crate::packet::Packet;
use crate::pool::Pool;
use crate::transport::Transport;

/// A rank that is a thread of this process: for tests, and for programs that run without MPI.
pub struct LocalTransport {
    rank: usize,
    others: Vec<Sender<(usize, Packet)>>,
    arrived: Receiver<(usize, Packet)>,
}

impl LocalTransport {
    /// Makes one transport for each of `ranks` ranks, each for a separate thread.
    pub fn for_ranks(ranks: usize) -> Vec<Self> {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..ranks).map(|_| channel()).unzip();
        let rank = |(rank, arrived)| Self { rank, others: senders.clone(), arrived };
        receivers.into_iter().enumerate().map(rank).collect()
    }
}

impl Transport for LocalTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.others.len()
    }

    fn send(&mut self, to: usize, packet: Packet, _pool: &mut Pool) -> Result<(), CollectiveError> {
        // A packet to a thread that has ended is lost, as on a network.
        let _ = self.others[to].send((self.rank, packet));
        Ok(())
    }

    fn receive(&mut self, _pool: &mut Pool) -> Result<Option<(usize, Packet)>, CollectiveError> {
        Ok(self.arrived.try_recv().ok())
    }

    fn outstanding(&self) -> usize {
        0
    }
}
