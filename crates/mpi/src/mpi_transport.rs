//! The transport over MPI.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use mpi::environment::Universe;
use plimsoll_core::CollectiveError;

use crate::mpi_calls::{Communicator, Message, MpiCallError, Request};
use crate::mpi_sums::MpiSums;
use crate::packet::Packet;
use crate::pool::Pool;
use crate::transport::Transport;

/// A rank of an MPI world.
///
/// Every buffer that MPI reads or writes belongs to this type until MPI is done with it, so that a wait can end at any time.
pub struct MpiTransport {
    rank: usize,
    ranks: usize,
    communicator: Communicator,
    /// Ends MPI when it is dropped.
    universe: Option<Universe>,
    sends: Vec<(Request, Packet, usize)>,
    /// Messages under way from each rank, in their order.
    arriving: Vec<VecDeque<(Request, Vec<u8>)>>,
    /// Ranks with messages under way.
    senders: Vec<usize>,
    sums: MpiSums,
}

/// Messages that begin to arrive in one call: the call must end even if others send without end.
const BEGUN_MAX: usize = 64;

impl MpiTransport {
    /// Joins the ranks of the communicator. Sums are made inside of each group of ranks first. All ranks make this call.
    pub(crate) fn new(communicator: Communicator, universe: Universe, group: usize) -> Result<Self, MpiCallError> {
        let (rank, ranks) = (communicator.rank()?, communicator.ranks()?);
        let arriving = (0..ranks).map(|_| VecDeque::new()).collect();
        let (sends, senders) = (Vec::new(), Vec::new());
        let sums = MpiSums::new(communicator, group)?;
        Ok(Self { rank, ranks, communicator, universe: Some(universe), sends, arriving, senders, sums })
    }

    /// Returns the communicator, for calls that all ranks make.
    pub(crate) fn communicator(&self) -> Communicator {
        self.communicator
    }

    /// Makes sums inside of other groups of ranks first. All ranks make this call.
    pub(crate) fn set_group(&mut self, group: usize) -> Result<(), MpiCallError> {
        self.sums.free();
        self.sums = MpiSums::new(self.communicator, group)?;
        Ok(())
    }

    /// Begins to receive all messages that have begun to arrive.
    fn begin_receives(&mut self, pool: &mut Pool) -> Result<(), CollectiveError> {
        for _ in 0..BEGUN_MAX {
            let Some(message) = self.communicator.next_message().map_err(|error| lost(self.rank, &error))? else {
                break;
            };
            let Message { from, len, .. } = message;
            let mut buffer = pool.take_filled(len);
            // SAFETY: the buffer has the length of the message, and is kept in `arriving` until the request is complete. A
            // vector that moves leaves its bytes where they are.
            let request = unsafe { message.begin_receive(&raw mut buffer[..]) };
            let request = request.map_err(|error| lost(from, &error))?;
            if self.arriving[from].is_empty() {
                self.senders.push(from);
            }
            self.arriving[from].push_back((request, buffer));
        }
        Ok(())
    }

    /// Takes a message that is complete, the first of its sender.
    fn take_complete(&mut self) -> Result<Option<(usize, Packet)>, CollectiveError> {
        for index in 0..self.senders.len() {
            let from = self.senders[index];
            let Some((request, _)) = self.arriving[from].front_mut() else { continue };
            if !request.is_complete().map_err(|error| lost(from, &error))? {
                continue;
            }
            let buffer = self.arriving[from].pop_front().map(|(_, buffer)| buffer);
            if self.arriving[from].is_empty() {
                self.senders.swap_remove(index);
            }
            return Ok(buffer.map(|buffer| (from, Arc::new(buffer))));
        }
        Ok(None)
    }

    /// Gives the buffers of packets back that were sent.
    fn finish_sends(&mut self, pool: &mut Pool) -> Result<(), CollectiveError> {
        let mut index = 0;
        while index < self.sends.len() {
            let (request, _, to) = &mut self.sends[index];
            if request.is_complete().map_err(|error| lost(*to, &error))? {
                pool.give(self.sends.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}

/// Makes the error for a rank that a call could not reach.
fn lost(rank: usize, error: &MpiCallError) -> CollectiveError {
    CollectiveError { rank, cause: format!("cannot be reached: {error}") }
}

/// Makes the error of a sum that the library refuses.
fn cannot_sum(rank: usize, error: &MpiCallError) -> CollectiveError {
    CollectiveError { rank, cause: format!("cannot sum by the MPI library: {error}") }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn send(&mut self, to: usize, packet: Packet, pool: &mut Pool) -> Result<(), CollectiveError> {
        // SAFETY: the packet is kept in `sends` until the request is complete, and what several own cannot change.
        let request = unsafe { self.communicator.begin_send(to, &raw const packet[..]) };
        let mut request = request.map_err(|error| lost(to, &error))?;
        match request.is_complete().map_err(|error| lost(to, &error))? {
            true => pool.give(packet),
            false => self.sends.push((request, packet, to)),
        }
        Ok(())
    }

    fn receive(&mut self, pool: &mut Pool) -> Result<Option<(usize, Packet)>, CollectiveError> {
        if let Some(complete) = self.take_complete()? {
            return Ok(Some(complete));
        }
        self.finish_sends(pool)?;
        self.begin_receives(pool)?;
        self.take_complete()
    }

    fn outstanding(&self) -> usize {
        self.sends.len()
    }

    fn has_library(&self) -> bool {
        true
    }

    fn begin_sum(&mut self, values: &[f32]) -> Result<(), CollectiveError> {
        self.sums.begin(values).map_err(|error| cannot_sum(self.rank, &error))
    }

    fn take_sum(&mut self, out: &mut [f32]) -> Result<Option<usize>, CollectiveError> {
        self.sums.take(out).map_err(|error| cannot_sum(self.rank, &error))
    }

    fn is_summing(&self) -> bool {
        !self.sums.is_empty()
    }

    fn ends_together(&self) -> bool {
        true
    }

    /// Ends MPI if `clean`. Otherwise MPI is left as it is: its end would wait for ranks that do not come.
    fn close(&mut self, clean: bool) {
        let Some(universe) = self.universe.take() else { return };
        if clean && self.senders.is_empty() {
            self.sums.free();
            self.communicator.free();
            drop(universe);
        } else {
            mem::forget(universe);
        }
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        self.close(false);
        // MPI may still read and write these buffers.
        mem::forget(mem::take(&mut self.sends));
        mem::forget(mem::take(&mut self.arriving));
    }
}
