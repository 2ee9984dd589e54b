//! Buffers that are used again, so that a step allocates nothing.

use std::sync::Arc;

use crate::packet::Packet;

/// Buffers that are free now.
#[derive(Debug, Default)]
pub struct Pool {
    free: Vec<Vec<u8>>,
}

/// More buffers than a gather with a few ranks has at once; the rest goes back to the allocator.
const FREE_MAX: usize = 64;
/// Buffers above this are too large to keep: they come from large gathers, which are rare.
const KEPT_LEN_MAX: usize = 8 << 20;

impl Pool {
    /// Takes an empty buffer for `len` bytes.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        // The newest that is large enough: its bytes may still be in a cache.
        let mut buffer = match self.free.iter().rposition(|buffer| buffer.capacity() >= len) {
            Some(index) => self.free.swap_remove(index),
            None => Vec::with_capacity(len),
        };
        buffer.clear();
        buffer
    }

    /// Takes a buffer with `len` bytes of any value.
    pub fn take_filled(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = match self.free.iter().rposition(|buffer| buffer.capacity() >= len) {
            Some(index) => self.free.swap_remove(index),
            None => return vec![0; len],
        };
        buffer.resize(len, 0);
        buffer
    }

    /// Takes the buffer of a packet back, if nothing else uses it.
    pub fn give(&mut self, packet: Packet) {
        if self.free.len() < FREE_MAX
            && let Ok(buffer) = Arc::try_unwrap(packet)
            && buffer.capacity() <= KEPT_LEN_MAX
        {
            self.free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_shared_stays_out() {
        let mut pool = Pool::default();
        let packet = Arc::new(vec![1, 2, 3]);
        let other = packet.clone();
        pool.give(packet);
        assert!(pool.free.is_empty());
        pool.give(other);
        assert_eq!((pool.take_filled(2).len(), pool.free.len()), (2, 0));
    }
}
