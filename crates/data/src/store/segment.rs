//! A segment: one file of records, one after another.

use std::borrow::Cow;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use memmap2::Mmap;

use super::key::StoreKey;
use super::record::{ALIGNMENT, HEADER, Header};

/// How much of one segment is searched for the next whole record, all damages together: as much as a quarter of the
/// largest segment. It bounds the work that a foreign file under our name can cause.
const SEARCH: u64 = 64 << 20;
/// How much is searched at a time.
const STRIDE: usize = 64 << 10;

/// An open segment; it can be read as long as it is open, even when its name is gone.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// What there was when it was opened; nothing where it is being written or could not be mapped.
    map: Option<Mmap>,
    held: AtomicBool,
}

/// Where a record is.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// What a look at the headers of a segment found.
#[derive(Default)]
pub(super) struct Scan {
    /// Key, offset and size of whole headers whose records fit into the file.
    pub(super) records: Vec<(StoreKey, u64, u64)>,
    /// Offsets from which on something is no record.
    pub(super) damaged: Vec<u64>,
    /// Whether the last of them goes on to the end, as while somebody is writing.
    pub(super) torn: bool,
}

impl Segment {
    /// Opens the segment at `path` for reading.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: a map must not change while a slice of it is in use. Segments are only appended to, by the one process
        // that holds their lock, behind what was there when we mapped; no program of ours writes into a segment
        // otherwise or makes it shorter, and deleting it only takes its name away. Should another program change its
        // bytes, the sums tell or wrong features come out, since numbers of any bits are valid numbers. Should one make
        // it shorter, reading would end the process (SIGBUS); `bytes` asks for the length first, which leaves the few
        // microseconds between question and reading, and disks that fail.
        let map = unsafe { Mmap::map(&file) }.ok();
        Ok(Self { path: path.into(), file, map, held: AtomicBool::new(false) })
    }

    /// A segment of our own, which is locked already.
    pub(super) fn own(path: PathBuf, file: File) -> Self {
        Self { path, file, map: None, held: AtomicBool::new(true) }
    }

    /// The bytes at a place, from the map where they are in it.
    pub(super) fn bytes(&self, offset: u64, size: u64) -> io::Result<Cow<'_, [u8]>> {
        match self.mapped(offset, size) {
            Some(bytes) => Ok(bytes.into()),
            None => self.copied(offset, size).map(Into::into),
        }
    }

    fn mapped(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        let bytes = self.map.as_ref()?.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)?;
        // See `open`: pages behind the end of the file must not be touched.
        (self.file.metadata().ok()?.len() >= end).then_some(bytes)
    }

    fn copied(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Says that this process uses the segment: it is locked against eviction and counts as new.
    ///
    /// Where its owner is still writing, the owner's lock protects it, and we ask again at the next reading.
    pub(super) fn hold(&self) {
        if !self.held.load(Ordering::Relaxed) && self.file.try_lock_shared().is_ok() {
            self.held.store(true, Ordering::Relaxed);
            // Best effort: only the owner of a file may do it.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }

    /// Whether a process, maybe this one, holds the segment for writing.
    pub(super) fn is_written(&self) -> bool {
        match self.file.try_lock_shared() {
            Ok(()) => {
                let _ = self.file.unlock();
                false
            }
            Err(error) => matches!(error, TryLockError::WouldBlock),
        }
    }
}

/// Looks at the headers of a segment; payloads stay unread where the headers are whole.
pub(super) fn scan(file: &File) -> io::Result<Scan> {
    let length = file.metadata()?.len();
    let mut scan = Scan::default();
    let (mut at, mut search) = (0, SEARCH);
    let mut bytes = [0; HEADER];
    while at < length {
        let whole = file.read_exact_at(&mut bytes, at).ok().and_then(|()| Header::read(&bytes, length - at));
        if let Some(header) = whole {
            scan.records.push((header.key, at, header.size));
            at += header.size;
            continue;
        }
        scan.damaged.push(at);
        let Some(next) = next_header(file, at + ALIGNMENT as u64, length, &mut search) else {
            scan.torn = true;
            break;
        };
        at = next;
    }
    Ok(scan)
}

/// The next place from `at` on where a whole header lies.
fn next_header(file: &File, mut at: u64, length: u64, search: &mut u64) -> Option<u64> {
    let mut bytes = vec![0; STRIDE + HEADER];
    while *search > 0 && at.checked_add(HEADER as u64)? <= length {
        let there = bytes.len().min((length - at).try_into().unwrap_or(usize::MAX));
        let bytes = &mut bytes[..there];
        file.read_exact_at(bytes, at).ok()?;
        let mut places = (0..=there - HEADER).step_by(ALIGNMENT).take(STRIDE / ALIGNMENT);
        let found = places.find(|&place| Header::read(&bytes[place..], length - at - place as u64).is_some());
        if let Some(place) = found {
            return Some(at + place as u64);
        }
        *search = search.saturating_sub(STRIDE as u64);
        at += STRIDE as u64;
    }
    None
}
