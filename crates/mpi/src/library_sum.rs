//! All-reduce by the library of the network: it knows the wires, and adds in an order of its own.
//!
//! The ranks first say that they are ready, and what they give. So a rank that is late, gone or differs is named as in all
//! operations, and no rank waits inside of the library for one that never comes.

use plimsoll_core::CollectiveError;

use crate::operation::Operation;
use crate::packet::{Header, Kind};
use crate::post::Post;
use crate::transport::Transport;

/// Numbers of a part. The values are copied, so that a wait can end while the library still uses the copy.
pub(crate) const PART_LEN: usize = 1 << 20;
/// Parts that are under way at once, so that one travels while another is copied.
const AHEAD: usize = 4;

/// Fills a slice with the next values of a sum, or says why it cannot.
pub(crate) type ReadValues<'a> = dyn FnMut(&mut [f32]) -> Result<(), String> + 'a;

/// A sum by the library that is under way.
pub(crate) struct LibrarySum<'a> {
    values: &'a mut [f32],
    /// Gives the values that are not there yet.
    read: &'a mut ReadValues<'a>,
    /// Numbers that are there.
    filled: usize,
    part_len: usize,
    /// Whether this rank has said that it is ready.
    is_announced: bool,
    /// Whether all have.
    is_agreed: bool,
    /// Numbers whose sums have begun, and those whose sums are there.
    begun: usize,
    stored: usize,
}

impl<'a> LibrarySum<'a> {
    /// Starts to sum values that `read` writes into `values`, in parts of `part_len` numbers.
    pub(crate) fn new(values: &'a mut [f32], part_len: usize, read: &'a mut ReadValues<'a>) -> Self {
        Self { values, read, filled: 0, part_len, is_announced: false, is_agreed: false, begun: 0, stored: 0 }
    }

    /// Returns where the part that begins at `from` ends.
    fn end(&self, from: usize) -> usize {
        (from + self.part_len).min(self.values.len())
    }

    /// Says that this rank is ready, and listens to the others. Returns whether all are.
    fn agree<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<bool, CollectiveError> {
        let header = Header { total: self.values.len() as u64, ..Header::new(Kind::Begin, number) };
        if !self.is_announced {
            self.is_announced = true;
            let packet = header.packet(&[]);
            post.others().try_for_each(|to| post.send(to, packet.clone()))?;
        }
        if !post.others().all(|from| post.has(from, Kind::Begin, number)) {
            return Ok(false);
        }
        for from in post.others() {
            let (found, _) = post.take(from, Kind::Begin, number).expect("all were there");
            check_equal(from, found.total, header.total)?;
        }
        Ok(true)
    }
}

/// Refuses a rank that gives another number of values than this one.
pub(crate) fn check_equal(rank: usize, found: u64, own: u64) -> Result<(), CollectiveError> {
    let cause = || format!("gave {found} numbers to a sum, where this replica gave {own}");
    if found == own { Ok(()) } else { Err(CollectiveError { rank, cause: cause() }) }
}

impl Operation for LibrarySum<'_> {
    const KINDS: &'static [Kind] = &[Kind::Begin];

    /// Reads a part.
    fn work(&mut self) -> Result<bool, String> {
        let end = self.end(self.filled);
        if end == self.filled {
            return Ok(false);
        }
        (self.read)(&mut self.values[self.filled..end])?;
        self.filled = end;
        Ok(true)
    }

    fn advance<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<bool, CollectiveError> {
        self.is_agreed = self.is_agreed || self.agree(number, post)?;
        if !self.is_agreed {
            return Ok(false);
        }
        while self.begun < self.filled && self.begun < self.stored + AHEAD * self.part_len {
            let end = self.end(self.begun);
            post.begin_sum(&self.values[self.begun..end])?;
            self.begun = end;
        }
        while let Some(len) = post.take_sum(&mut self.values[self.stored..self.begun])? {
            self.stored += len;
        }
        Ok(self.stored == self.values.len())
    }

    fn awaited<T: Transport>(&self, number: u64, post: &Post<T>) -> Option<usize> {
        post.others().find(|&from| !self.is_agreed && !post.has(from, Kind::Begin, number))
    }
}
