//! Appending records to segments of our own, within the limit of the folder.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::folder::{self, Listed};
use super::segment::{Place, Segment};

/// The largest segment: large enough for few files, small enough to throw one away.
const SEGMENT: u64 = 256 << 20;
/// A folder of the limit holds at least so many segments, so that eviction takes a small part of it.
const SEGMENTS: u64 = 16;
/// How much is written before we look again at what others have written.
const LOOK: u64 = 16 << 20;

/// The only one in this process who writes into the folder.
pub(super) struct Writer {
    folder: PathBuf,
    limit: u64,
    /// Bytes of all segments: what the last look found, and what we have written since.
    total: u64,
    since: u64,
    own: Option<(Arc<Segment>, u64)>,
}

/// What making room came to.
pub(super) struct Room {
    pub(super) enough: bool,
    /// Segments that were deleted for it.
    pub(super) gone: Vec<PathBuf>,
}

impl Writer {
    pub(super) fn new(folder: PathBuf, limit: u64, listed: &[Listed]) -> Self {
        Self { folder, limit, total: folder::total(listed), since: 0, own: None }
    }

    /// Where it writes.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes of all segments, as far as is known.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Makes sure that `size` bytes more stay within the limit, where that is possible.
    pub(super) fn make_room(&mut self, size: u64) -> io::Result<Room> {
        let mut gone = Vec::new();
        if size > self.limit {
            return Ok(Room { enough: false, gone });
        }
        if self.since >= LOOK || self.excess(size) > 0 {
            let mut listed = folder::list(&self.folder)?;
            self.look(&listed);
            if self.excess(size) > 0 {
                gone = folder::evict(&mut listed, self.excess(size));
                self.look(&listed);
            }
        }
        Ok(Room { enough: self.excess(size) == 0, gone })
    }

    fn look(&mut self, listed: &[Listed]) {
        (self.total, self.since) = (folder::total(listed), 0);
    }

    fn excess(&self, size: u64) -> u64 {
        self.total.saturating_add(size).saturating_sub(self.limit)
    }

    /// Appends a record, and says where it is.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<Place> {
        let size = record.len() as u64;
        let largest = SEGMENT.min(self.limit / SEGMENTS);
        let (segment, offset) = match self.own.take() {
            Some((segment, length)) if length.saturating_add(size) <= largest => (segment, length),
            _ => (self.begin()?, 0),
        };
        segment.file.write_all_at(record, offset)?;
        self.own = Some((segment.clone(), offset + size));
        self.total = self.total.saturating_add(size);
        self.since += size;
        Ok(Place { segment, offset, size })
    }

    /// A new segment, with a number higher than all: where a key is found twice, the later record counts.
    fn begin(&self) -> io::Result<Arc<Segment>> {
        let last = folder::list(&self.folder)?.last().map_or(0, |segment| segment.number);
        let (path, file) = folder::create(&self.folder, last.saturating_add(1))?;
        Ok(Arc::new(Segment::own(path, file)))
    }
}
