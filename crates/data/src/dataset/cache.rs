//! Features kept in memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::Bytes;

/// Features kept in memory, each in its own slot, until the limit is reached.
///
/// Nothing is ever thrown out: an epoch asks for every sample once, in random order, so no sample is worth more.
pub(super) struct Cache {
    slots: Vec<OnceLock<Box<[f32]>>>,
    pub(super) used: AtomicU64,
    limit: u64,
}

impl Cache {
    pub(super) fn new(slots: usize, limit: Bytes) -> Self {
        Self { slots: (0..slots).map(|_| OnceLock::new()).collect(), used: AtomicU64::new(0), limit: limit.0 }
    }

    pub(super) fn get(&self, index: usize) -> Option<&[f32]> {
        self.slots[index].get().map(|features| &**features)
    }

    /// Keeps a copy where there is room. Room is taken first, so that threads cannot together go over the limit.
    pub(super) fn keep(&self, index: usize, features: &[f32]) {
        let size = Bytes::of::<f32>(features.len() as u64).0;
        let more = |used: u64| used.checked_add(size).filter(|&used| used <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        // Another thread may have been faster.
        if self.slots[index].set(features.into()).is_err() {
            self.used.fetch_sub(size, Ordering::Relaxed);
        }
    }
}
