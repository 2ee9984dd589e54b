//! Lists, creates and deletes the segments in a store's folder.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::time::SystemTime;

use super::error::StoreError;

const EXTENSION: &str = "plimsoll";
/// Largest number of names tried for a new segment. Each name is random, so one attempt is almost always enough.
const MAX_ATTEMPTS: usize = 8;

/// File with the name of a segment.
#[derive(Clone, Debug)]
pub(super) struct SegmentFile {
    pub(super) path: PathBuf,
    /// Number of the segment: the first part of the file name. Later segments have higher numbers.
    pub(super) number: u64,
    pub(super) size: u64,
    modified: SystemTime,
}

/// Lists all segments, in the order of their creation.
pub(super) fn list(folder: &Path) -> io::Result<Vec<SegmentFile>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(number) = number_in(&entry.file_name()) else { continue };
        // Another process may have deleted the file since. Folders and links are not segments.
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        segments.push(SegmentFile { path: entry.path(), number, size: metadata.len(), modified });
    }
    segments.sort_by(|a, b| (a.number, &a.path).cmp(&(b.number, &b.path)));
    Ok(segments)
}

/// Computes the size of all segments together, in bytes.
pub(super) fn total(segments: &[SegmentFile]) -> u64 {
    segments.iter().fold(0, |total: u64, segment| total.saturating_add(segment.size))
}

/// Returns the number `NNNNNNNN` of a segment called `NNNNNNNN-PID-RANDOM.plimsoll`; `None` for any other name.
fn number_in(name: &OsStr) -> Option<u64> {
    let parts: Vec<&str> = name.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?.split('-').collect();
    let &[number, process, random] = parts.as_slice() else { return None };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_segment = number.len() >= 8
        && digits(number)
        && digits(process)
        && random.len() == 16
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_segment { number.parse().ok() } else { None }
}

/// Creates an empty segment, locked for this process.
pub(super) fn create(folder: &Path, number: u64) -> io::Result<(PathBuf, File)> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_ATTEMPTS {
        // The standard library has a random key for each process, and changes it with each call.
        let random = RandomState::new().build_hasher().finish();
        let path = folder.join(format!("{number:08}-{}-{random:016x}.{EXTENSION}", process::id()));
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                last = error;
                continue;
            }
            opened => opened?,
        };
        // Between opening and locking, another process may have taken it for an abandoned segment and deleted it. On a disk
        // without locks no process deletes segments, so there a segment without a lock is fine.
        let is_ours = !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && file.metadata()?.nlink() > 0;
        if is_ours {
            return Ok((path, file));
        }
        let _ = fs::remove_file(&path);
    }
    Err(last)
}

/// Deletes the oldest segments that no process uses, until `excess` bytes are freed or no such segment is left. Returns
/// the deleted paths.
pub(super) fn evict(segments: &mut Vec<SegmentFile>, excess: u64) -> Vec<PathBuf> {
    let mut oldest = segments.clone();
    oldest.sort_by_key(|segment| segment.modified);
    let (mut freed, mut deleted) = (0u64, Vec::new());
    for segment in oldest {
        if freed >= excess {
            break;
        }
        let free = |file: &File| file.try_lock().is_ok();
        if delete(&segment.path, free).unwrap_or(false) {
            freed = freed.saturating_add(segment.size);
            deleted.push(segment.path);
        }
    }
    segments.retain(|segment| !deleted.contains(&segment.path));
    if !deleted.is_empty() {
        tracing::info!(segments = deleted.len(), bytes = freed, "the oldest stored features were deleted");
    }
    deleted
}

/// Deletes all segments that no process is writing, and returns the freed bytes. Other files stay.
pub(super) fn clear(folder: &Path) -> Result<u64, StoreError> {
    let segments = list(folder).map_err(|source| StoreError::Read { path: folder.into(), source })?;
    let mut freed = 0u64;
    for SegmentFile { path, size, .. } in segments {
        let unwritten = |file: &File| !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        match delete(&path, unwritten) {
            Ok(true) => freed = freed.saturating_add(size),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(StoreError::Delete { path, source }),
        }
    }
    Ok(freed)
}

/// Deletes the segment at `path` if `may` returns true for the opened file, and returns whether the segment was
/// deleted. A lock that `may` takes on the file is held until the segment is deleted.
fn delete(path: &Path, may: impl FnOnce(&File) -> bool) -> io::Result<bool> {
    let file = File::open(path)?;
    let may = may(&file);
    if may {
        fs::remove_file(path)?;
    }
    Ok(may)
}
