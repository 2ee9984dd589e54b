//! Keeps the features of utterances in memory, up to a limit in bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use plimsoll_core::Bytes;

/// Number of parts of the cache. A thread rarely waits for another that fills the same part.
const PARTS: usize = 64;

/// Cache of features in memory, until the memory limit is reached. It takes no memory for utterances that it does not keep.
///
/// Nothing is evicted: an epoch asks for every sample once, in random order, so all samples are worth the same.
pub(super) struct MemoryCache {
    parts: Vec<RwLock<HashMap<Sample, Arc<[f32]>>>>,
    used: AtomicU64,
    limit: u64,
}

/// Number of an utterance, and the bits of its speed.
type Sample = (usize, u32);

impl MemoryCache {
    pub(super) fn new(limit: Bytes) -> Self {
        let parts = if limit.0 == 0 { 0 } else { PARTS };
        Self { parts: (0..parts).map(|_| RwLock::default()).collect(), used: AtomicU64::new(0), limit: limit.0 }
    }

    /// Returns the memory of all kept features.
    pub(super) fn used(&self) -> Bytes {
        Bytes(self.used.load(Ordering::Relaxed))
    }

    pub(super) fn get(&self, index: usize, speed: f32) -> Option<Arc<[f32]>> {
        let part = self.parts.get(index % PARTS)?;
        part.read().unwrap_or_else(PoisonError::into_inner).get(&(index, speed.to_bits())).cloned()
    }

    /// Keeps a copy of `features` if it fits. The memory is reserved first, so that threads together cannot exceed the
    /// limit.
    pub(super) fn keep(&self, index: usize, speed: f32, features: &[f32]) {
        let size = Bytes::for_values::<f32>(features.len() as u64).0;
        let more = |used: u64| used.checked_add(size).filter(|&used| used <= self.limit);
        let Some(part) = self.parts.get(index % PARTS) else { return };
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        // Another thread may have kept them first.
        let sample = (index, speed.to_bits());
        if part.write().unwrap_or_else(PoisonError::into_inner).insert(sample, features.into()).is_some() {
            self.used.fetch_sub(size, Ordering::Relaxed);
        }
    }
}
