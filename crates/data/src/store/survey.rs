//! Counts the records in a store's folder, and deletes the store's files.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;

use super::error::StoreError;
use super::folder::{self, SegmentFile};
use super::record::{self, Payload};
use super::segment::{self, Scan, Segment};

/// Report on the content of a store's folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreReport {
    /// Number of segments: the files in the folder that hold records.
    pub segments: u64,
    /// Number of intact records in the folder.
    pub records: u64,
    /// Number of those that are no features, but hashes of audio files.
    pub hashes: u64,
    /// Size of all segments in the folder.
    pub bytes: Bytes,
    /// Damaged records, in the order of the files.
    pub damaged: Vec<DamagedRecord>,
}

/// Place in a file without an intact record. The lost features are computed again when they are needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRecord {
    /// File with the damage.
    pub segment: PathBuf,
    /// Offset of the damage in the file, in bytes.
    pub offset: u64,
}

/// Reads every record of a store's folder: how many there are, their size, and which are damaged.
///
/// `progress` gets the number of bytes read so far, after each record. A record that another process is writing at the
/// moment does not count as damaged.
///
/// # Errors
/// When the folder or a file in it cannot be read.
pub fn survey(folder: impl AsRef<Path>, progress: &dyn Fn(u64)) -> Result<StoreReport, StoreError> {
    let folder = folder.as_ref();
    let listed = folder::list(folder).map_err(|source| StoreError::Read { path: folder.into(), source })?;
    let mut report = StoreReport::default();
    for SegmentFile { path, size, .. } in listed {
        match survey_segment(&path, &mut report, progress) {
            // Another process may have deleted it since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            surveyed => surveyed.map_err(|source| StoreError::Read { path, source })?,
        }
        report.segments += 1;
        report.bytes.0 = report.bytes.0.saturating_add(size);
        progress(report.bytes.0);
    }
    Ok(report)
}

fn survey_segment(path: &Path, report: &mut StoreReport, progress: &dyn Fn(u64)) -> io::Result<()> {
    let segment = Segment::open(path)?;
    let Scan { records, mut damaged, torn } = segment::scan(&segment.file)?;
    if torn && segment.is_written() {
        damaged.pop();
    }
    for (key, offset, size) in records {
        match segment.bytes(offset, size).ok().and_then(|bytes| record::open(&bytes, key)) {
            Some(payload) => {
                report.records += 1;
                report.hashes += u64::from(matches!(payload, Payload::ContentHash(_)));
            }
            None => damaged.push(offset),
        }
        progress(report.bytes.0.saturating_add(offset + size));
    }
    damaged.sort_unstable();
    report.damaged.extend(damaged.into_iter().map(|offset| DamagedRecord { segment: path.into(), offset }));
    Ok(())
}

/// Deletes the segments of a store's folder, and returns the freed bytes.
///
/// Other files stay, and so do segments that a process is writing. A process that reads a deleted segment can go on.
///
/// # Errors
/// When the folder cannot be read or a file cannot be deleted.
pub fn clear(folder: impl AsRef<Path>) -> Result<Bytes, StoreError> {
    folder::clear(folder.as_ref()).map(Bytes)
}
