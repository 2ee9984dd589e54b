//! Features on disk: what was computed once is there for the next run.
//!
//! A [`Store`] is a folder of segments, files to which records are only ever appended. Each process writes segments of
//! its own, which it holds locked, and reads those of all; so any number of threads and processes can use one folder at
//! once, and none waits for another. Records are found by a [`StoreKey`] made of everything that their values depend on:
//! no record is ever out of date, and two processes that compute the same keep the same.
//!
//! The store may lose anything at any time and never says anything wrong. Nothing is synchronised with the disk; a crash
//! costs the last records. Every record carries sums, of its header, which are checked when the index is made, and of its
//! payload, which are checked whenever it is read. What does not agree with its sum is as good as not there, and the next
//! run writes it anew.
//!
//! Medians of `cargo xtask bench store` on two cores, for ten seconds of speech in 16 (32) bits from the page cache:
//! computing takes 2,770 µs, writing 268 (192), reading from a map 70 (59), reading into a buffer 77 (249), opening a store
//! again 1.7 for each record. So segments are mapped, except those that this process itself has written, which are read
//! into a buffer. Sums are part of these times, and too little beside computing to remember what was checked before.
//!
//! ```
//! use plimsoll_core::Bytes;
//! use plimsoll_data::{Store, StoreConfig, StoreKey, StoreNumbers};
//!
//! let folder = tempfile::tempdir()?;
//! let config = StoreConfig { limit: Bytes::gib(1), numbers: StoreNumbers::F32 };
//! let key = StoreKey::of(&[b"a sound", b"80 mels"]);
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

pub use config::{StoreConfig, StoreNumbers};
pub use error::StoreError;
pub use key::StoreKey;
pub use survey::{Damage, StoreReport, clear, survey};

use folder::Listed;
use record::Kept;
use segment::{Place, Scan, Segment};
use writer::Writer;

/// What a store holds, and what was done with it since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounts {
    /// Records that can be found.
    pub records: u64,
    /// What all files of the folder take, as far as is known.
    pub bytes: Bytes,
    /// Values that were asked for and found.
    pub hits: u64,
    /// Values that were asked for and not found.
    pub misses: u64,
    /// Records written.
    pub written: u64,
    /// Places that are no whole record, found at opening or reading.
    pub damaged: u64,
    /// Records not written because of the limit.
    pub refused: u64,
}

/// Features on disk. One serves any number of threads, and any number of processes can open the same folder.
///
/// What other processes write is seen when the store is opened.
pub struct Store {
    numbers: StoreNumbers,
    index: RwLock<HashMap<StoreKey, Place>>,
    writer: Mutex<Writer>,
    /// Hashes of files that were asked for.
    contents: Mutex<HashMap<StoreKey, u128>>,
    /// The smallest record for which there was no room; room only becomes less, so larger ones need not ask.
    no_room: AtomicU64,
    off: AtomicBool,
    tallies: Tallies,
}

#[derive(Default)]
struct Tallies {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    damaged: AtomicU64,
    refused: AtomicU64,
}

impl Store {
    /// Opens the store in `folder`, which is made if it is not there.
    ///
    /// A folder over the limit loses its oldest files first, except those in use. Then the headers of all records are
    /// read.
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
            numbers: config.numbers,
            index: RwLock::default(),
            writer: Mutex::new(Writer::new(path, config.limit.0, &listed)),
            contents: Mutex::default(),
            no_room: AtomicU64::new(u64::MAX),
            off: AtomicBool::new(false),
            tallies: Tallies::default(),
        };
        store.read_headers(&listed);
        Ok(store)
    }

    /// `values` as they would come back.
    pub fn rounded(&self, mut values: Vec<f32>) -> Vec<f32> {
        if self.numbers == StoreNumbers::F16 && record::fits_half(&values) {
            values.iter_mut().for_each(|value| *value = half::f16::from_f32(*value).to_f32());
        }
        values
    }

    fn read_headers(&self, listed: &[Listed]) {
        let scan = |listed: &Listed| {
            let segment = Segment::open(&listed.path)?;
            segment::scan(&segment.file).map(|scan| (Arc::new(segment), scan))
        };
        let scanned: Vec<io::Result<(Arc<Segment>, Scan)>> = listed.par_iter().map(scan).collect();
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        // In the order of writing, so that a record written anew takes the place of the damaged one.
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
            damaged.into_iter().for_each(|offset| self.tell_damage(&segment, offset));
            let place = |(key, offset, size)| (key, Place { segment: segment.clone(), offset, size });
            index.extend(records.into_iter().map(place));
        }
    }

    /// The values of `key`; nothing where there is no whole record.
    ///
    /// A damaged record counts as none; the first one is told in the log, and all are counted.
    pub fn get(&self, key: StoreKey) -> Option<Vec<f32>> {
        let values = match self.find(key) {
            Some(Kept::Values(values)) => Some(values),
            _ => None,
        };
        let tally = if values.is_some() { &self.tallies.hits } else { &self.tallies.misses };
        tally.fetch_add(1, Relaxed);
        values
    }

    fn find(&self, key: StoreKey) -> Option<Kept> {
        let place = self.index.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()?;
        let Place { segment, offset, size } = &place;
        segment.hold();
        let kept = segment.bytes(*offset, *size).ok().and_then(|bytes| record::open(&bytes, key));
        if kept.is_none() && self.forget(key, &place) {
            self.tell_damage(segment, *offset);
        }
        kept
    }

    /// Takes a damaged record out of the index, so that it can be written anew; no, if another thread has done so.
    fn forget(&self, key: StoreKey, place: &Place) -> bool {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let same = |found: &Place| Arc::ptr_eq(&found.segment, &place.segment) && found.offset == place.offset;
        let there = index.get(&key).is_some_and(same);
        if there {
            index.remove(&key);
        }
        there
    }

    fn tell_damage(&self, segment: &Segment, offset: u64) {
        if self.tallies.damaged.fetch_add(1, Relaxed) == 0 {
            let file = segment.path.display();
            tracing::warn!(%file, offset, "stored features are damaged; they and any others will be made anew");
        }
    }

    /// Keeps values that are not there yet.
    ///
    /// It keeps nothing once the limit is reached and no file can go. Where the disk fails, which is told in the log,
    /// nothing more is written by this store. Neither is an error: the values can be computed again.
    pub fn put(&self, key: StoreKey, values: &[f32]) {
        if !self.off.load(Relaxed) && !self.has(key) {
            self.keep(key, &record::of_values(key, values, self.numbers));
        }
    }

    fn has(&self, key: StoreKey) -> bool {
        self.index.read().unwrap_or_else(PoisonError::into_inner).contains_key(&key)
    }

    fn keep(&self, key: StoreKey, record: &[u8]) {
        let size = record.len() as u64;
        if size >= self.no_room.load(Relaxed) {
            self.tallies.refused.fetch_add(1, Relaxed);
            return;
        }
        let mut writer = lock(&self.writer);
        // Another thread may have been faster.
        if self.off.load(Relaxed) || self.has(key) {
            return;
        }
        match self.write(&mut writer, record) {
            Ok(Some(place)) => {
                self.tallies.written.fetch_add(1, Relaxed);
                self.index.write().unwrap_or_else(PoisonError::into_inner).insert(key, place);
            }
            Ok(None) => {
                self.tallies.refused.fetch_add(1, Relaxed);
                self.no_room.fetch_min(size, Relaxed);
            }
            Err(error) => {
                self.off.store(true, Relaxed);
                tracing::warn!(folder = %writer.folder().display(), %error, "no more features are stored");
            }
        }
    }

    /// Where the record is now, or nothing if there is no room for it.
    fn write(&self, writer: &mut Writer, record: &[u8]) -> io::Result<Option<Place>> {
        let room = writer.make_room(record.len() as u64)?;
        if !room.gone.is_empty() {
            let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
            index.retain(|_, place| !room.gone.contains(&place.segment.path));
        }
        if room.enough { writer.append(record).map(Some) } else { Ok(None) }
    }

    /// What it holds, and what was done with it since it was opened.
    pub fn counts(&self) -> StoreCounts {
        let Tallies { hits, misses, written, damaged, refused } = &self.tallies;
        StoreCounts {
            records: self.index.read().unwrap_or_else(PoisonError::into_inner).len() as u64,
            bytes: Bytes(lock(&self.writer).total()),
            hits: hits.load(Relaxed),
            misses: misses.load(Relaxed),
            written: written.load(Relaxed),
            damaged: damaged.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }
}

/// A thread that panicked has left nothing half done that matters here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
