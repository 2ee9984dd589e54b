//! All-gather: the bytes of each rank reach all ranks.

use std::sync::Arc;

use plimsoll_core::CollectiveError;

use crate::operation::Operation;
use crate::packet::{HEADER_LEN, Header, Kind, Packet, body};
use crate::post::Post;
use crate::transport::Transport;

/// Bytes of a chunk. MPI counts bytes with 31 bits, and a heartbeat waits behind a chunk that is under way.
pub(crate) const CHUNK_LEN: usize = 32 << 20;
/// Chunks to each rank that are under way at once, so that little is copied ahead.
const AHEAD: usize = 4;

/// An all-gather that is under way.
pub(crate) struct Gather {
    rank: usize,
    own: Vec<u8>,
    chunk_len: usize,
    chunks_sent: usize,
    contents: Vec<Content>,
}

/// What has arrived from one rank.
#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    chunks: u64,
    total: Option<u64>,
}

impl Gather {
    /// Starts to gather, with `own` as the bytes of this rank.
    pub(crate) fn new<T: Transport>(own: Vec<u8>, chunk_len: usize, post: &Post<T>) -> Self {
        let mut contents: Vec<Content> = (0..post.ranks()).map(|_| Content::default()).collect();
        contents[post.rank()].total = Some(0);
        Self { rank: post.rank(), own, chunk_len, chunks_sent: 0, contents }
    }

    /// Returns the bytes of all ranks.
    pub(crate) fn into_contents(mut self) -> Vec<Arc<[u8]>> {
        self.contents[self.rank].bytes = self.own;
        self.contents.into_iter().map(|content| content.bytes.into()).collect()
    }

    /// Returns the number of chunks; empty contents have one, too.
    fn n_chunks(&self) -> usize {
        self.own.len().div_ceil(self.chunk_len).max(1)
    }

    fn send_chunk<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<(), CollectiveError> {
        let start = self.chunks_sent * self.chunk_len;
        let end = (start + self.chunk_len).min(self.own.len());
        let (part, total) = (self.chunks_sent as u64, self.own.len() as u64);
        let mut buffer = post.pool().take(HEADER_LEN + end - start);
        let header = Header { part, total, ..Header::new(Kind::Gather, number) };
        buffer.extend_from_slice(&header.to_bytes());
        buffer.extend_from_slice(&self.own[start..end]);
        let packet: Packet = Arc::new(buffer);
        self.chunks_sent += 1;
        post.others().try_for_each(|to| post.send(to, packet.clone()))
    }
}

impl Content {
    /// Returns whether all bytes are there.
    fn is_complete(&self) -> bool {
        self.total == Some(self.bytes.len() as u64)
    }

    /// Adds a chunk, or returns what is wrong with it.
    fn add(&mut self, header: Header, packet: &[u8]) -> Result<(), String> {
        let chunk = body(packet);
        let total = *self.total.get_or_insert(header.total);
        let len = self.bytes.len() as u64 + chunk.len() as u64;
        let stalls = chunk.is_empty() && total > 0;
        if header.total != total || header.part != self.chunks || len > total || stalls {
            let (part, bytes) = (header.part, chunk.len());
            return Err(format!("sent chunk {part} with {bytes} bytes, which does not belong to {total} bytes"));
        }
        self.bytes.extend_from_slice(chunk);
        self.chunks += 1;
        Ok(())
    }
}

impl Operation for Gather {
    const KINDS: &'static [Kind] = &[Kind::Gather];

    fn advance<T: Transport>(&mut self, number: u64, post: &mut Post<T>) -> Result<bool, CollectiveError> {
        while self.chunks_sent < self.n_chunks() && post.outstanding() < AHEAD * post.ranks() {
            self.send_chunk(number, post)?;
        }
        for from in post.others() {
            while !self.contents[from].is_complete()
                && let Some((header, packet)) = post.take(from, Kind::Gather, number)
            {
                self.contents[from].add(header, &packet).map_err(|cause| CollectiveError { rank: from, cause })?;
                post.pool().give(packet);
            }
        }
        Ok(self.chunks_sent == self.n_chunks() && self.contents.iter().all(Content::is_complete))
    }

    fn awaited<T: Transport>(&self, _number: u64, _post: &Post<T>) -> Option<usize> {
        self.contents.iter().position(|content| !content.is_complete())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_that_do_not_belong_are_refused() {
        let chunk = |part, total, len: usize| {
            let header = Header { part, total, ..Header::new(Kind::Gather, 1) };
            (header, header.packet(&vec![7; len]))
        };
        let check = |chunks: &[(Header, Packet)], expected: bool| {
            let mut content = Content::default();
            let added = chunks.iter().try_for_each(|(header, packet)| content.add(*header, packet));
            assert_eq!(added.is_ok() && content.is_complete(), expected, "{chunks:?}");
        };
        check(&[chunk(0, 5, 3), chunk(1, 5, 2)], true);
        check(&[chunk(0, 0, 0)], true);
        check(&[chunk(0, u64::MAX, 3)], false);
        check(&[chunk(0, 5, 3), chunk(1, 6, 3)], false);
        check(&[chunk(0, 5, 3), chunk(2, 5, 2)], false);
        check(&[chunk(0, 5, 6)], false);
        check(&[chunk(0, 5, 0)], false);
    }
}
