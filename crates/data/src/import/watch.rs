//! What a program can show of an import while it goes on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// An index that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListIndex {
    /// File of the index, beside its list.
    pub file: PathBuf,
    /// Number of utterances of the list.
    pub utterances: usize,
    /// Size of the index in bytes.
    pub bytes: u64,
}

/// How far the reading of a long list has come. Copies watch the same import.
///
/// ```
/// use plimsoll_data::{ImportOptions, ImportWatch, import};
///
/// let folder = tempfile::tempdir()?;
/// let line = "{\"audio_filepath\": \"a.wav\", \"duration\": 1.5, \"text\": \"one\"}\n";
/// std::fs::write(folder.path().join("manifest.jsonl"), line)?;
/// let watch = ImportWatch::default();
/// import(folder.path(), &ImportOptions { watch: watch.clone(), ..ImportOptions::default() })?;
/// assert_eq!((watch.read(), watch.size()), (line.len() as u64, line.len() as u64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ImportWatch(Arc<State>);

#[derive(Debug, Default)]
struct State {
    read: AtomicU64,
    size: AtomicU64,
    found: AtomicU64,
    sought: AtomicU64,
    index: Mutex<Option<ListIndex>>,
}

impl ImportWatch {
    /// Returns the bytes of the list that are read.
    pub fn read(&self) -> u64 {
        self.0.read.load(Relaxed)
    }

    /// Returns the bytes of the list: 0 before it is opened, and for lists that are not plain JSON lines.
    pub fn size(&self) -> u64 {
        self.0.size.load(Relaxed)
    }

    /// Returns the number of audio files whose place was looked at, after the list was read or its index was opened.
    pub fn found(&self) -> u64 {
        self.0.found.load(Relaxed)
    }

    /// Returns the number of audio files whose places are looked at: 0 before that begins.
    pub fn sought(&self) -> u64 {
        self.0.sought.load(Relaxed)
    }

    /// Takes the index that was made of the list; `None` if none was.
    pub fn take_index(&self) -> Option<ListIndex> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn begin(&self, size: u64) {
        self.0.read.store(0, Relaxed);
        self.0.size.store(size, Relaxed);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.0.read.fetch_add(bytes, Relaxed);
    }

    /// Notes that of `sought` audio files `found` were looked at.
    pub(crate) fn look(&self, found: u64, sought: u64) {
        // Threads come in any order.
        self.0.found.fetch_max(found, Relaxed);
        self.0.sought.store(sought, Relaxed);
    }

    pub(super) fn set_index(&self, index: ListIndex) {
        *self.0.index.lock().unwrap_or_else(PoisonError::into_inner) = Some(index);
    }
}

impl PartialEq for ImportWatch {
    /// Who watches changes nothing of an import.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
