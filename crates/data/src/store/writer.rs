//! Appends records to the segments of this process, within the limit of the folder.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::folder::{self, SegmentFile};
use super::segment::{RecordLocation, Segment};

/// Largest segment, in bytes: few files, but each small enough to be deleted alone.
const MAX_SEGMENT: u64 = 256 << 20;
/// Smallest number of segments in a full folder, so that deleting one segment frees only a small part.
const MIN_SEGMENTS: u64 = 16;
/// Number of bytes written before the folder is listed again, to include the segments of other processes.
const LIST_INTERVAL: u64 = 16 << 20;

/// Appends records to segments of this process, within the limit of the folder.
pub(super) struct Writer {
    folder: PathBuf,
    limit: u64,
    /// Size of all segments in the folder in bytes: the size at the last listing of the folder, plus the bytes that
    /// this process has written since.
    total: u64,
    /// Number of bytes that this process has written since it last listed the segments in the folder.
    since: u64,
    /// Segment that is being written, and its length in bytes; `None` if the next record starts a new segment.
    own: Option<(Arc<Segment>, u64)>,
}

/// Result of `Writer::make_room`: whether a record fits, and which segments were deleted for it.
pub(super) struct Room {
    /// Whether the record fits within the limit of the folder.
    pub(super) is_enough: bool,
    /// Paths of the segments that were deleted.
    pub(super) deleted: Vec<PathBuf>,
}

impl Writer {
    pub(super) fn new(folder: PathBuf, limit: u64, listed: &[SegmentFile]) -> Self {
        Self { folder, limit, total: folder::total(listed), since: 0, own: None }
    }

    /// Returns the folder that the segments are written to.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the size of all segments in bytes, as far as known.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Makes room for `size` bytes within the limit of the folder, by deleting old segments if needed.
    pub(super) fn make_room(&mut self, size: u64) -> io::Result<Room> {
        let mut deleted = Vec::new();
        if size > self.limit {
            return Ok(Room { is_enough: false, deleted });
        }
        if self.since >= LIST_INTERVAL || self.excess(size) > 0 {
            let mut listed = folder::list(&self.folder)?;
            self.set_total(&listed);
            if self.excess(size) > 0 {
                deleted = folder::evict(&mut listed, self.excess(size));
                self.set_total(&listed);
            }
        }
        Ok(Room { is_enough: self.excess(size) == 0, deleted })
    }

    fn set_total(&mut self, listed: &[SegmentFile]) {
        (self.total, self.since) = (folder::total(listed), 0);
    }

    fn excess(&self, size: u64) -> u64 {
        self.total.saturating_add(size).saturating_sub(self.limit)
    }

    /// Appends a record, and returns its location.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<RecordLocation> {
        let size = record.len() as u64;
        let largest = MAX_SEGMENT.min(self.limit / MIN_SEGMENTS);
        let (segment, offset) = match self.own.take() {
            Some((segment, length)) if length.saturating_add(size) <= largest => (segment, length),
            _ => (self.new_segment()?, 0),
        };
        segment.file.write_all_at(record, offset)?;
        self.own = Some((segment.clone(), offset + size));
        self.total = self.total.saturating_add(size);
        self.since += size;
        Ok(RecordLocation { segment, offset, size })
    }

    /// Creates a segment with the highest number. Where a key occurs twice, the record in the later segment counts.
    fn new_segment(&self) -> io::Result<Arc<Segment>> {
        let last = folder::list(&self.folder)?.last().map_or(0, |segment| segment.number);
        let (path, file) = folder::create(&self.folder, last.saturating_add(1))?;
        Ok(Arc::new(Segment::new_own(path, file)))
    }
}
