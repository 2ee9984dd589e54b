//! Looking at everything in a folder, and deleting it.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;

use super::error::StoreError;
use super::folder::{self, Listed};
use super::record;
use super::segment::{self, Scan, Segment};

/// What is in a folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreReport {
    /// Files.
    pub segments: u64,
    /// Whole records.
    pub records: u64,
    /// What all files take.
    pub bytes: Bytes,
    /// What is no whole record, in the order of the files.
    pub damaged: Vec<Damage>,
}

/// A place where something is no whole record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub segment: PathBuf,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// Looks at every record of a folder: how many, how large, which are damaged.
///
/// `progress` is told after each record how many bytes have been looked at. What another process is writing at this
/// moment is no damage.
pub fn survey(folder: impl AsRef<Path>, progress: &dyn Fn(u64)) -> Result<StoreReport, StoreError> {
    let folder = folder.as_ref();
    let listed = folder::list(folder).map_err(|source| StoreError::Read { path: folder.into(), source })?;
    let mut report = StoreReport::default();
    for Listed { path, size, .. } in listed {
        match look(&path, &mut report, progress) {
            // Another process may have deleted it since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            looked => looked.map_err(|source| StoreError::Read { path, source })?,
        }
        report.segments += 1;
        report.bytes.0 = report.bytes.0.saturating_add(size);
        progress(report.bytes.0);
    }
    Ok(report)
}

fn look(path: &Path, report: &mut StoreReport, progress: &dyn Fn(u64)) -> io::Result<()> {
    let segment = Segment::open(path)?;
    let Scan { records, mut damaged, torn } = segment::scan(&segment.file)?;
    if torn && segment.is_written() {
        damaged.pop();
    }
    for (key, offset, size) in records {
        let whole = segment.bytes(offset, size).is_ok_and(|bytes| record::open(&bytes, key).is_some());
        if whole {
            report.records += 1;
        } else {
            damaged.push(offset);
        }
        progress(report.bytes.0.saturating_add(offset + size));
    }
    damaged.sort_unstable();
    report.damaged.extend(damaged.into_iter().map(|offset| Damage { segment: path.into(), offset }));
    Ok(())
}

/// Deletes what a folder holds, and says how much that was.
///
/// Only files of ours go, and of those only what no process is writing; a process that reads one goes on reading it.
pub fn clear(folder: impl AsRef<Path>) -> Result<Bytes, StoreError> {
    folder::clear(folder.as_ref()).map(Bytes)
}
