//! The seam below the collectives: packets from one rank to another.

use plimsoll_core::CollectiveError;

use crate::packet::Packet;
use crate::pool::Pool;

/// Sends packets between the ranks of a run. No method waits.
///
/// Packets of one rank to another arrive in the order in which they were sent. Packets of different ranks arrive in any
/// order. The collectives need nothing else, so that the same code runs over MPI, in tests and in simulations.
pub trait Transport: Send {
    /// Returns the index of this rank.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn ranks(&self) -> usize;

    /// Begins to send `packet` to rank `to`.
    ///
    /// # Errors
    /// If the network reports that it cannot be sent.
    fn send(&mut self, to: usize, packet: Packet, pool: &mut Pool) -> Result<(), CollectiveError>;

    /// Returns a packet that has arrived, with its sender. Moves packets that are under way on.
    ///
    /// # Errors
    /// If the network reports that a packet is lost.
    fn receive(&mut self, pool: &mut Pool) -> Result<Option<(usize, Packet)>, CollectiveError>;

    /// Returns the number of packets whose sending has begun and is not complete.
    fn outstanding(&self) -> usize;

    /// Returns whether the network has a library that sums. The default is no.
    fn has_library(&self) -> bool {
        false
    }

    /// Begins to sum `values` over all ranks by the network's library. All ranks begin sums of the same lengths in the same
    /// order. Called only if there is a library.
    ///
    /// # Errors
    /// If the library reports one.
    fn begin_sum(&mut self, values: &[f32]) -> Result<(), CollectiveError> {
        let _ = values;
        Ok(())
    }

    /// Writes the sums of the oldest values that were given to [`Transport::begin_sum`] to the start of `out`, if they are
    /// complete, and returns their number.
    ///
    /// # Errors
    /// If the library reports one.
    fn take_sum(&mut self, out: &mut [f32]) -> Result<Option<usize>, CollectiveError> {
        let _ = out;
        Ok(None)
    }

    /// Returns whether a sum of the library has begun and was not taken.
    fn is_summing(&self) -> bool {
        false
    }

    /// Returns whether the transport ends well only after all other ranks have ended theirs. The default is no.
    fn ends_together(&self) -> bool {
        false
    }

    /// Ends the transport. `clean` says whether all other ranks are known to end theirs, too; if not, an end that waits
    /// for them could wait for ever.
    fn close(&mut self, clean: bool) {
        let _ = clean;
    }
}
