//! Segments: the files of a store, in which records lie one after the other.

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

/// Largest number of bytes of one segment that are searched for intact records after damage, all damage together: a
/// quarter of the largest segment. It bounds the work for a foreign file with the name of a segment.
const MAX_SEARCH: u64 = 64 << 20;
/// Number of bytes that are read and searched at a time for the next intact record after damage.
const STRIDE: usize = 64 << 10;

/// Open segment. It can be read while it is open, even when the file is deleted.
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Mapped content at the time of opening; `None` for a segment that this process writes, or that cannot be mapped.
    map: Option<Mmap>,
    is_locked: AtomicBool,
}

/// Location of a record: segment, offset and size.
#[derive(Clone)]
pub(super) struct RecordLocation {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Result of reading the headers of a segment.
#[derive(Default)]
pub(super) struct Scan {
    /// Key, offset and size of the records with intact headers.
    pub(super) records: Vec<(StoreKey, u64, u64)>,
    /// Offsets where damage begins.
    pub(super) damaged: Vec<u64>,
    /// Whether no intact record was found after the last damage. This is normal at the end of a file to which another
    /// process is writing a record.
    pub(super) torn: bool,
}

impl Segment {
    /// Opens the segment at `path` for reading.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: mapped bytes must not change while a slice of them is in use. Only the process that holds the lock of a
        // segment writes to it, and it only appends, behind the mapped range. No code here truncates a segment, and
        // deleting a file does not change its mapped bytes. If another program changes the bytes, the checksum fails, or
        // wrong features come out: any bits are valid numbers, so memory safety does not depend on them. If another program
        // truncates the file, reading would end the process with SIGBUS. `bytes` checks the length first, so this remains
        // possible only in the few microseconds between check and read, or on a failing disk.
        let map = unsafe { Mmap::map(&file) }.ok();
        Ok(Self { path: path.into(), file, map, is_locked: AtomicBool::new(false) })
    }

    /// Wraps a segment that this process has created and locked.
    pub(super) fn new_own(path: PathBuf, file: File) -> Self {
        Self { path, file, map: None, is_locked: AtomicBool::new(true) }
    }

    /// Reads `size` bytes at an offset, from the map where possible.
    pub(super) fn bytes(&self, offset: u64, size: u64) -> io::Result<Cow<'_, [u8]>> {
        match self.mapped(offset, size) {
            Some(bytes) => Ok(bytes.into()),
            None => self.copied(offset, size).map(Into::into),
        }
    }

    fn mapped(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let end = offset.checked_add(size)?;
        let bytes = self.map.as_ref()?.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)?;
        // See `open`: pages behind the end of the file must not be read.
        (self.file.metadata().ok()?.len() >= end).then_some(bytes)
    }

    fn copied(&self, offset: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Marks the segment as used by this process: a shared lock protects it from deletion, and its modification time is
    /// set to now.
    ///
    /// While another process writes the segment, the lock of that process protects it, and the next read tries again.
    pub(super) fn mark_used(&self) {
        if !self.is_locked.load(Ordering::Relaxed) && self.file.try_lock_shared().is_ok() {
            self.is_locked.store(true, Ordering::Relaxed);
            // May fail: only the owner of a file may set its time.
            let _ = self.file.set_modified(SystemTime::now());
        }
    }

    /// Returns whether a process, maybe this one, is writing the segment.
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

/// Reads the headers of a segment. Payloads are read only in search of the next record after damage.
pub(super) fn scan(file: &File) -> io::Result<Scan> {
    let length = file.metadata()?.len();
    let mut scan = Scan::default();
    let (mut at, mut search) = (0, MAX_SEARCH);
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

/// Finds the offset of the next intact header from offset `at` on, in a file of `length` bytes. Searches at most
/// `search` bytes and subtracts the searched bytes; `None` if it finds no header.
fn next_header(file: &File, mut at: u64, length: u64, search: &mut u64) -> Option<u64> {
    let mut bytes = vec![0; STRIDE + HEADER];
    while *search > 0 && at.checked_add(HEADER as u64)? <= length {
        let there = bytes.len().min((length - at).try_into().unwrap_or(usize::MAX));
        let bytes = &mut bytes[..there];
        file.read_exact_at(bytes, at).ok()?;
        let mut offsets = (0..=there - HEADER).step_by(ALIGNMENT).take(STRIDE / ALIGNMENT);
        let found = offsets.find(|&offset| Header::read(&bytes[offset..], length - at - offset as u64).is_some());
        if let Some(offset) = found {
            return Some(at + offset as u64);
        }
        *search = search.saturating_sub(STRIDE as u64);
        at += STRIDE as u64;
    }
    None
}
