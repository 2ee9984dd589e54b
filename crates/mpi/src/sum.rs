//! All-reduce: numbers are replaced by their sums over all ranks, with the same bits on each rank.
//!
//! The array is cut into buckets and each bucket into a slice for each rank. A rank receives its slice from all others,
//! adds the slices in the order of the ranks, and sends the sums to all others. So each rank sends and receives the array
//! about twice, whatever the number of ranks, and each sum is the one that adding whole arrays in rank order gives.

use std::ops::Range;
use std::sync::Arc;

use plimsoll_core::CollectiveError;

use crate::operation::Operation;
use crate::packet::{HEADER_LEN, Header, Kind, Packet, body};
use crate::post::Post;
use crate::transport::Transport;
use crate::values::Values;

/// Bytes of the slice that one rank sends to another at a time. Between two processes on one machine 64 and 128 KiB needed
/// about twice the time of 256 KiB to 4 MiB (`bench_all_reduce`, 25M numbers); small ones stay in the caches.
pub(crate) const SLICE_LEN: usize = 512 << 10;
/// Buckets that are under way at once, so that some travel while another is added up.
pub(crate) const AHEAD: usize = 4;

/// An all-reduce that is under way.
pub(crate) struct Sum<V> {
    values: V,
    ranks: usize,
    buckets: usize,
    /// Buckets whose slices were sent.
    sent: usize,
    /// Buckets whose own slice was added up.
    added: usize,
    /// Buckets whose sums have arrived, by rank.
    stored: Vec<usize>,
}

impl<V: Values> Sum<V> {
    /// Starts to sum `values`, with slices of about `slice_len` bytes.
    pub(crate) fn new<T: Transport>(values: V, slice_len: usize, post: &Post<T>) -> Self {
        let ranks = post.ranks();
        let bucket_len = (slice_len / V::WIDTH).max(1) * ranks;
        // No numbers at all are a bucket, too, so that ranks that give some are found.
        let buckets = values.len().div_ceil(bucket_len).max(1);
        Self { values, ranks, buckets, sent: 0, added: 0, stored: vec![0; ranks] }
    }

    /// Returns the range of the slice of a rank in a bucket.
    fn slice(&self, bucket: usize, rank: usize) -> Range<usize> {
        let cut = |whole: Range<usize>, part: usize, parts: usize| {
            let at = |part: usize| whole.start + share(whole.len(), part, parts);
            at(part)..at(part + 1)
        };
        cut(cut(0..self.values.len(), bucket, self.buckets), rank, self.ranks)
    }

    fn header(&self, kind: Kind, number: u64, bucket: usize) -> Header {
        let (part, total) = (bucket as u64, self.values.len() as u64);
        Header { format: V::FORMAT, part, total, ..Header::new(kind, number) }
    }

    /// Makes a packet for `range`, whose body `fill` writes.
    fn packet<T: Transport>(
        &mut self,
        header: Header,
        range: Range<usize>,
        post: &mut Post<T>,
        fill: impl FnOnce(&mut V, Range<usize>, &mut [u8]),
    ) -> Packet {
        let mut buffer = post.pool().take_filled(HEADER_LEN + range.len() * V::WIDTH);
        let (head, out) = buffer.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&header.to_bytes());
        fill(&mut self.values, range, out);
        Arc::new(buffer)
    }

    /// Sends the slices of the next bucket.
    fn send_slices<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<(), CollectiveError> {
        let header = self.header(Kind::Slice, number, self.sent);
        for to in post.others() {
            let range = self.slice(self.sent, to);
            let packet = self.packet(header, range, post, V::encode);
            post.send(to, packet)?;
        }
        self.sent += 1;
        Ok(())
    }

    /// Adds the own slice of the next bucket, and sends the sums.
    fn add_slices<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<(), CollectiveError> {
        let header = self.header(Kind::Slice, number, self.added);
        let range = self.slice(self.added, post.rank());
        let mut packets: Vec<Option<Packet>> = vec![None; self.ranks];
        for from in post.others() {
            let (found, packet) = post.take(from, Kind::Slice, number).expect("all slices were there");
            check(from, found, header, &packet, range.len() * V::WIDTH)?;
            packets[from] = Some(packet);
        }
        let header = self.header(Kind::Sums, number, self.added);
        let parts: Vec<Option<&[u8]>> =
            packets.iter().map(|packet| packet.as_ref().map(|packet| body(packet))).collect();
        let sums = self.packet(header, range, post, |values, range, out| values.add(range, &parts, out));
        post.others().try_for_each(|to| post.send(to, sums.clone()))?;
        post.pool().give(sums);
        packets.into_iter().flatten().for_each(|packet| post.pool().give(packet));
        self.added += 1;
        Ok(())
    }

    /// Stores the sums that rank `from` has sent so far.
    fn store_sums<T: Transport>(
        &mut self,
        from: usize,
        number: u64,
        post: &mut Post<T>,
    ) -> Result<(), CollectiveError> {
        while let Some((found, packet)) = post.take(from, Kind::Sums, number) {
            let bucket = self.stored[from];
            let range = self.slice(bucket, from);
            check(from, found, self.header(Kind::Sums, number, bucket), &packet, range.len() * V::WIDTH)?;
            self.values.store(range, body(&packet));
            post.pool().give(packet);
            self.stored[from] += 1;
        }
        Ok(())
    }

    /// Returns the number of buckets that are complete on this rank.
    fn complete<T: Transport>(&self, post: &Post<T>) -> usize {
        post.others().map(|rank| self.stored[rank]).fold(self.added, usize::min)
    }
}

/// Returns where part `part` of `parts` nearly equal parts begins.
fn share(len: usize, part: usize, parts: usize) -> usize {
    // Without overflow for any length that memory can hold.
    (len / parts) * part + (len % parts) * part / parts
}

/// Compares the packet of rank `rank` with what this rank expects.
fn check(rank: usize, found: Header, expected: Header, packet: &Packet, len: usize) -> Result<(), CollectiveError> {
    let cause = if found.total != expected.total {
        format!("gave {} numbers to a sum, where this replica gave {}", found.total, expected.total)
    } else if found.format != expected.format {
        "gave numbers of another type to a sum".into()
    } else if found.part != expected.part || body(packet).len() != len {
        format!(
            "sent bucket {} of a sum with {} bytes, not bucket {} with {len}",
            found.part,
            body(packet).len(),
            expected.part
        )
    } else {
        return Ok(());
    };
    Err(CollectiveError { rank, cause })
}

impl<V: Values> Operation for Sum<V> {
    const KINDS: &'static [Kind] = &[Kind::Slice, Kind::Sums];

    fn advance<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<bool, CollectiveError> {
        while self.sent < self.buckets && self.sent < self.complete(post) + AHEAD {
            self.send_slices(number, post)?;
        }
        if self.added < self.sent && post.others().all(|from| post.has(from, Kind::Slice, number)) {
            self.add_slices(number, post)?;
        }
        for from in post.others() {
            self.store_sums(from, number, post)?;
        }
        Ok(self.complete(post) == self.buckets)
    }

    fn awaited<T: Transport>(&self, number: u64, post: &Post<T>) -> Option<usize> {
        let ranks = (0..self.ranks).filter(|&rank| rank != post.rank());
        // A rank whose slice is missing holds up all others; one whose sums are missing may itself wait for a slice.
        let no_slice = |&rank: &usize| self.added < self.sent && !post.has(rank, Kind::Slice, number);
        let late = |&rank: &usize| self.stored[rank] < self.buckets;
        ranks.clone().find(no_slice).or_else(|| ranks.clone().filter(late).min_by_key(|&rank| self.stored[rank]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_cover_the_whole(len in 0..usize::MAX, parts in 1..2000_usize, part in 0..2000_usize) {
            let part = part % parts;
            let (start, end) = (share(len, part, parts), share(len, part + 1, parts));
            prop_assert!(start <= end && end - start <= len / parts + 1);
            prop_assert_eq!((share(len, 0, parts), share(len, parts, parts)), (0, len));
        }
    }
}
