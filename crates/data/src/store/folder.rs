//! The segments of a folder: which there are, whose they are, and which may go.

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
/// How often another name is tried for a new segment: each failure needs an accident of its own.
const ATTEMPTS: usize = 8;

/// A file that is a segment by its name.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) path: PathBuf,
    /// The first part of the name; what is written later has a higher one.
    pub(super) number: u64,
    pub(super) size: u64,
    modified: SystemTime,
}

/// All segments, in the order in which they were begun.
pub(super) fn list(folder: &Path) -> io::Result<Vec<Listed>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(number) = number_in(&entry.file_name()) else { continue };
        // A segment may be deleted while we look; and what is no plain file is none of ours.
        let Some(metadata) = entry.metadata().ok().filter(fs::Metadata::is_file) else { continue };
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        segments.push(Listed { path: entry.path(), number, size: metadata.len(), modified });
    }
    segments.sort_by(|a, b| (a.number, &a.path).cmp(&(b.number, &b.path)));
    Ok(segments)
}

/// Bytes of all segments together.
pub(super) fn total(segments: &[Listed]) -> u64 {
    segments.iter().fold(0, |total: u64, segment| total.saturating_add(segment.size))
}

/// The number in `NNNNNNNN-PID-RANDOM.plimsoll`; nothing for names that are not ours.
fn number_in(name: &OsStr) -> Option<u64> {
    let parts: Vec<&str> = name.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?.split('-').collect();
    let &[number, process, random] = parts.as_slice() else { return None };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let ours = number.len() >= 8
        && digits(number)
        && digits(process)
        && random.len() == 16
        && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    if ours { number.parse().ok() } else { None }
}

/// A new, empty segment that this process alone may write, locked.
pub(super) fn create(folder: &Path, number: u64) -> io::Result<(PathBuf, File)> {
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..ATTEMPTS {
        // The standard library draws a new key for each process and counts it up from there.
        let random = RandomState::new().build_hasher().finish();
        let path = folder.join(format!("{number:08}-{}-{random:016x}.{EXTENSION}", process::id()));
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                last = error;
                continue;
            }
            opened => opened?,
        };
        // Between the two calls somebody may have taken it for an abandoned segment, and deleted it. Where a disk knows
        // no locks nobody can delete by them, so there we may write without.
        let ours = !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && file.metadata()?.nlink() > 0;
        if ours {
            return Ok((path, file));
        }
        let _ = fs::remove_file(&path);
    }
    Err(last)
}

/// Deletes the oldest segments that nobody holds until `excess` bytes are gone, or nothing can go any more.
pub(super) fn evict(segments: &mut Vec<Listed>, excess: u64) -> Vec<PathBuf> {
    let mut oldest = segments.clone();
    oldest.sort_by_key(|segment| segment.modified);
    let (mut freed, mut gone) = (0u64, Vec::new());
    for segment in oldest {
        if freed >= excess {
            break;
        }
        let free = |file: &File| file.try_lock().is_ok();
        if delete(&segment.path, free).unwrap_or(false) {
            freed = freed.saturating_add(segment.size);
            gone.push(segment.path);
        }
    }
    segments.retain(|segment| !gone.contains(&segment.path));
    if !gone.is_empty() {
        tracing::info!(segments = gone.len(), bytes = freed, "the oldest stored features were deleted");
    }
    gone
}

/// Deletes all segments that nobody is writing, and says how much that was. Other files stay.
pub(super) fn clear(folder: &Path) -> Result<u64, StoreError> {
    let segments = list(folder).map_err(|source| StoreError::Read { path: folder.into(), source })?;
    let mut freed = 0u64;
    for Listed { path, size, .. } in segments {
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

/// Deletes a segment if it `may` go; the file stays open, and with it our lock, until its name is gone.
fn delete(path: &Path, may: impl FnOnce(&File) -> bool) -> io::Result<bool> {
    let file = File::open(path)?;
    let may = may(&file);
    if may {
        fs::remove_file(path)?;
    }
    Ok(may)
}
