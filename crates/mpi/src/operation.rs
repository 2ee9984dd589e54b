//! What the engine needs to know of an operation.

use plimsoll_core::CollectiveError;

use crate::packet::Kind;
use crate::post::Post;
use crate::transport::Transport;

/// An operation between all ranks, which goes on whenever packets arrive. It never waits.
pub(crate) trait Operation {
    /// Kinds of its packets.
    const KINDS: &'static [Kind];

    /// Does a piece of work that needs no packet and may take long, between two calls of `advance`. Returns whether there was
    /// any.
    ///
    /// # Errors
    /// If the work fails, and with it the operation.
    fn work(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    /// Goes on as far as the packets allow that have arrived. Returns whether it is complete.
    fn advance<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<bool, CollectiveError>;

    /// Returns the rank that it waits for, the first one that holds up the others.
    fn awaited<T: Transport>(&self, number: u64, post: &Post<T>) -> Option<usize>;
}
