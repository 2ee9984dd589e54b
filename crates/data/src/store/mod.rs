//! Features on disk: a run reads the features that an earlier run has computed.
//!
//! A [`Store`] is a folder of segments: files to which records are only appended. Each process locks and writes
//! segments of its own and reads the segments of all, so any number of threads and processes can use one folder at the
//! same time without waiting for each other. The [`StoreKey`] of a record is a hash of everything that its values
//! depend on, so no record is ever out of date.
//!
//! The store may lose records at any time, but never returns wrong ones. Writes are not synchronized with the disk; a
//! crash costs the last records. Every record has a checksum of its header, which is checked when the store is opened,
//! and one of its payload, which is checked at every read. A record with a wrong checksum counts as missing, and the
//! next run writes it again.
//!
//! Medians of `cargo xtask bench store` on two cores, for ten seconds of speech in 16 (32) bits from the page cache:
//! computing features takes 2,770 µs, writing 268 (192) µs, reading from a map 70 (59) µs, reading into a buffer 77
//! (249) µs, and opening a store 1.7 µs for each record. So segments are mapped, except those that this process writes,
//! which are read into a buffer. The times include the checksums.
//!
//! ```
//! use plimsoll_core::Bytes;
//! use plimsoll_data::store::{Store, StoreConfig, StoreKey, StorePrecision};
//!
//! let folder = tempfile::tempdir()?;
//! let config = StoreConfig { limit: Bytes::gib(1), precision: StorePrecision::F32 };
//! let key = StoreKey::new(&[b"an audio file", b"80 mels"]);
//! Store::open(folder.path(), &config)?.put(key, &[0.5, 0.1]);
//! assert_eq!(Store::open(folder.path(), &config)?.get(key), Some(vec![0.5, 0.1]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod error;

mod key;
mod record;

mod folder;
mod segment;
mod writer;

mod content;
mod survey;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::{fs, io};

use plimsoll_core::Bytes;
use rayon::prelude::*;

pub use config::{StoreConfig, StorePrecision};
pub use error::StoreError;
pub use key::StoreKey;
pub(crate) use key::{KeyBuilder, write_key_part};
pub use survey::{DamagedRecord, StoreReport, clear, survey};

use folder::SegmentFile;
use record::Payload;
use segment::{RecordLocation, Scan, Segment};
use writer::Writer;

/// Counts of the content of a store, and of its use since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Number of records in the index: features and content hashes.
    pub records: u64,
    /// Size of all segments in the folder, as far as known: other processes may have written more.
    pub bytes: Bytes,
    /// Number of calls of [`Store::get`] that found features.
    pub hits: u64,
    /// Number of calls of [`Store::get`] that found no features.
    pub misses: u64,
    /// Number of records that this store has written since it was opened.
    pub written: u64,
    /// Number of damaged records, found at opening or reading.
    pub damaged: u64,
    /// Number of records that were not written because the folder has no room for them within [`StoreConfig::limit`].
    pub rejected: u64,
}

/// Store of features on disk. Many threads can share a store, and many processes can open one folder.
///
/// The store finds the records of other processes when it is opened. Records that they write afterwards are not found.
pub struct Store {
    precision: StorePrecision,
    index: RwLock<HashMap<StoreKey, RecordLocation>>,
    writer: Mutex<Writer>,
    /// Content hashes of files that were asked for.
    content_hashes: Mutex<HashMap<StoreKey, u128>>,
    /// Size in bytes of the smallest record that did not fit within the limit. The free room only shrinks, so records
    /// of at least this size are rejected without another attempt.
    smallest_rejected: AtomicU64,
    /// Whether a write failed. After a failed write, nothing more is written.
    write_failed: AtomicBool,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    damaged: AtomicU64,
    rejected: AtomicU64,
}

impl Store {
    /// Opens the store in `folder`, and creates the folder if needed.
    ///
    /// If the folder exceeds [`StoreConfig::limit`], its oldest files are deleted, except those in use. Then the
    /// headers of all records are read.
    ///
    /// # Errors
    /// When the folder cannot be created or read. A single unreadable file is only logged.
    pub fn open(folder: impl AsRef<Path>, config: &StoreConfig) -> Result<Self, StoreError> {
        let path = folder.as_ref().to_path_buf();
        fs::create_dir_all(&path).map_err(|source| StoreError::Create { path: path.clone(), source })?;
        let listed = folder::list(&path);
        let mut listed = listed.map_err(|source| StoreError::Read { path: path.clone(), source })?;
        let excess = folder::total(&listed).saturating_sub(config.limit.0);
        if excess > 0 {
            folder::evict(&mut listed, excess);
        }
        let store = Self {
            precision: config.precision,
            index: RwLock::default(),
            writer: Mutex::new(Writer::new(path, config.limit.0, &listed)),
            content_hashes: Mutex::default(),
            smallest_rejected: AtomicU64::new(u64::MAX),
            write_failed: AtomicBool::new(false),
            counters: Counters::default(),
        };
        store.read_headers(&listed);
        Ok(store)
    }

    /// Returns `values` as [`get`](Self::get) would return them: rounded in a 16-bit store, unchanged in a 32-bit
    /// store.
    pub fn rounded(&self, mut values: Vec<f32>) -> Vec<f32> {
        if self.precision == StorePrecision::F16 && record::fits_half(&values) {
            values.iter_mut().for_each(|value| *value = half::f16::from_f32(*value).to_f32());
        }
        values
    }

    fn read_headers(&self, listed: &[SegmentFile]) {
        let scan = |listed: &SegmentFile| {
            let segment = Segment::open(&listed.path)?;
            segment::scan(&segment.file).map(|scan| (Arc::new(segment), scan))
        };
        let scanned: Vec<io::Result<(Arc<Segment>, Scan)>> = listed.par_iter().map(scan).collect();
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        // In the order of writing, so that a record that was written again replaces the damaged one.
        for (listed, scanned) in listed.iter().zip(scanned) {
            let (segment, Scan { records, mut damaged, torn }) = match scanned {
                Ok(scanned) => scanned,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    tracing::warn!(file = %listed.path.display(), %error, "stored features cannot be read");
                    continue;
                }
            };
            if torn && segment.is_written() {
                damaged.pop();
            }
            damaged.into_iter().for_each(|offset| self.count_damage(&segment, offset));
            let located = |(key, offset, size)| (key, RecordLocation { segment: segment.clone(), offset, size });
            index.extend(records.into_iter().map(located));
        }
    }

    /// Returns the features of `key`; `None` where there is no intact record.
    ///
    /// Damaged records are counted, and the first one is logged.
    pub fn get(&self, key: StoreKey) -> Option<Vec<f32>> {
        let values = match self.find(key) {
            Some(Payload::Values(values)) => Some(values),
            _ => None,
        };
        let counter = if values.is_some() { &self.counters.hits } else { &self.counters.misses };
        counter.fetch_add(1, Relaxed);
        values
    }

    fn find(&self, key: StoreKey) -> Option<Payload> {
        let location = self.index.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()?;
        let RecordLocation { segment, offset, size } = &location;
        segment.mark_used();
        let payload = segment.bytes(*offset, *size).ok().and_then(|bytes| record::open(&bytes, key));
        if payload.is_none() && self.forget(key, &location) {
            self.count_damage(segment, *offset);
        }
        payload
    }

    /// Removes a damaged record from the index, so that it can be written again. Returns false if the index no longer
    /// has this record under `key`, because another thread has removed or replaced it.
    fn forget(&self, key: StoreKey, location: &RecordLocation) -> bool {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let same =
            |found: &RecordLocation| Arc::ptr_eq(&found.segment, &location.segment) && found.offset == location.offset;
        let is_same = index.get(&key).is_some_and(same);
        if is_same {
            index.remove(&key);
        }
        is_same
    }

    fn count_damage(&self, segment: &Segment, offset: u64) {
        if self.counters.damaged.fetch_add(1, Relaxed) == 0 {
            let file = segment.path.display();
            tracing::warn!(%file, offset, "stored features are damaged; these and all other damaged ones will be computed again");
        }
    }

    /// Stores features under a key that is not stored yet.
    ///
    /// Storing never fails, because features can be computed again. Nothing is stored when the limit is reached and no
    /// old file can be deleted. After a failed write, which is logged, this store writes nothing more.
    pub fn put(&self, key: StoreKey, values: &[f32]) {
        if !self.write_failed.load(Relaxed) && !self.has(key) {
            self.add_record(key, &record::values_record(key, values, self.precision));
        }
    }

    fn has(&self, key: StoreKey) -> bool {
        self.index.read().unwrap_or_else(PoisonError::into_inner).contains_key(&key)
    }

    fn add_record(&self, key: StoreKey, record: &[u8]) {
        let size = record.len() as u64;
        if size >= self.smallest_rejected.load(Relaxed) {
            self.counters.rejected.fetch_add(1, Relaxed);
            return;
        }
        let mut writer = lock(&self.writer);
        // Another thread may have written it, or failed to, since.
        if self.write_failed.load(Relaxed) || self.has(key) {
            return;
        }
        match self.write(&mut writer, record) {
            Ok(Some(location)) => {
                self.counters.written.fetch_add(1, Relaxed);
                self.index.write().unwrap_or_else(PoisonError::into_inner).insert(key, location);
            }
            Ok(None) => {
                self.counters.rejected.fetch_add(1, Relaxed);
                self.smallest_rejected.fetch_min(size, Relaxed);
            }
            Err(error) => {
                self.write_failed.store(true, Relaxed);
                tracing::warn!(folder = %writer.folder().display(), %error, "writing failed; no more features are stored");
            }
        }
    }

    /// Writes a record, and returns its location; `None` if there is no room.
    fn write(&self, writer: &mut Writer, record: &[u8]) -> io::Result<Option<RecordLocation>> {
        let room = writer.make_room(record.len() as u64)?;
        if !room.deleted.is_empty() {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.retain(|_, location| !room.deleted.contains(&location.segment.path));
        }
        if room.is_enough { writer.append(record).map(Some) } else { Ok(None) }
    }

    /// Returns counts of the content of the store, and of its use since it was opened.
    pub fn counts(&self) -> StoreCounts {
        let Counters { hits, misses, written, damaged, rejected } = &self.counters;
        StoreCounts {
            records: self.index.read().unwrap_or_else(PoisonError::into_inner).len() as u64,
            bytes: Bytes(lock(&self.writer).total()),
            hits: hits.load(Relaxed),
            misses: misses.load(Relaxed),
            written: written.load(Relaxed),
            damaged: damaged.load(Relaxed),
            rejected: rejected.load(Relaxed),
        }
    }
}

/// Locks a mutex even after a panic of another thread: no panic leaves a half-done change in the maps and files of a
/// store.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
