//! Keeps the features of utterances in memory, up to a limit in bytes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::Bytes;

/// Cache of features in memory, one slot for each utterance, until the memory limit is reached.
///
/// Nothing is evicted: an epoch asks for every sample once, in random order, so all samples are worth the same.
pub(super) struct MemoryCache {
    slots: Vec<OnceLock<Box<[f32]>>>,
    used: AtomicU64,
    limit: u64,
}

impl MemoryCache {
    pub(super) fn new(slots: usize, limit: Bytes) -> Self {
        Self { slots: (0..slots).map(|_| OnceLock::new()).collect(), used: AtomicU64::new(0), limit: limit.0 }
    }

    /// Returns the memory of all kept features.
    pub(super) fn used(&self) -> Bytes {
        Bytes(self.used.load(Ordering::Relaxed))
    }

    pub(super) fn get(&self, index: usize) -> Option<&[f32]> {
        self.slots[index].get().map(|features| &**features)
    }

    /// Keeps a copy of `features` if it fits. The memory is reserved first, so that threads together cannot exceed the
    /// limit.
    pub(super) fn keep(&self, index: usize, features: &[f32]) {
        let size = Bytes::for_values::<f32>(features.len() as u64).0;
        let more = |used: u64| used.checked_add(size).filter(|&used| used <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        // Another thread may have filled the slot first.
        if self.slots[index].set(features.into()).is_err() {
            self.used.fetch_sub(size, Ordering::Relaxed);
        }
    }
}
