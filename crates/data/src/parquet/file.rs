//! An open Parquet file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_audio::PackedPage;
use plimsoll_core::open_regular_file;

use super::MAGIC;
use super::schema::{Chunk, Footer, Form};
use crate::columns::{Damage, Leaf};

/// Open file whose end is read.
#[derive(Debug)]
pub(crate) struct ParquetFile {
    file: File,
    size: u64,
    pub(super) footer: Footer,
    /// Bytes that may still be unpacked: a file that unpacks to much more than its size is no corpus.
    budget: AtomicU64,
}

/// Most times of its size that a file may unpack to, and bytes that it may unpack to whatever its size.
const MAX_UNPACK_RATIO: u64 = 200;
const UNCHECKED_BYTES: u64 = 64 << 20;

impl ParquetFile {
    /// Opens a file, and reads its end.
    pub(crate) fn open(path: &Path) -> io::Result<Result<Self, Damage>> {
        let file = open_regular_file(path)?;
        let size = file.metadata()?.len();
        let budget = AtomicU64::new(size.saturating_mul(MAX_UNPACK_RATIO).max(UNCHECKED_BYTES));
        let mut open = Self { file, size, footer: Footer::default(), budget };
        Ok(open.read_footer().map(|footer| {
            open.footer = footer;
            open
        }))
    }

    fn read_footer(&mut self) -> Result<Footer, Damage> {
        let no_end = || Damage::new(0, "the file does not end as Parquet does, so it may be cut short");
        let last = self.size.checked_sub(8).filter(|&last| last >= 4).ok_or_else(no_end)?;
        if self.bytes(0, 4)? != MAGIC {
            return Err(Damage::new(0, "the file does not begin as Parquet does"));
        }
        let end = self.bytes(last, 8)?;
        if &end[4..] != MAGIC {
            return Err(no_end());
        }
        let length = end[..4].iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte));
        let start = last.checked_sub(length).filter(|&start| start >= 4);
        let start = start.ok_or_else(|| Damage::new(last, "the description of the columns is longer than the file"))?;
        let damage = |problem: &str| Damage::new(start, problem);
        let footer = Footer::read(&self.bytes(start, length)?);
        let footer = footer.ok_or_else(|| damage("the description of the columns makes no sense"))?;
        // Each row has audio, so it has a byte or more.
        let rows = footer.groups.iter().try_fold(0u64, |sum, group| sum.checked_add(group.rows));
        if rows.is_none_or(|rows| rows > self.size) {
            return Err(damage("there are more rows than bytes"));
        }
        if rows != Some(footer.rows) {
            return Err(damage("the row groups do not have all rows"));
        }
        let chunks = || footer.groups.iter().flat_map(|group| &group.chunks);
        let is_inside = chunks().all(|chunk| chunk.start.checked_add(chunk.length).is_some_and(|end| end <= start));
        // Columns that overlap would be read again and again.
        let total = chunks().try_fold(0u64, |sum, chunk| sum.checked_add(chunk.length));
        if !is_inside || total.is_none_or(|total| total > start) {
            return Err(damage("columns lie outside of the file"));
        }
        Ok(footer)
    }

    /// Returns the form of the values of a column.
    pub(super) fn form(&self, leaf: &Leaf) -> Form {
        self.footer.forms[leaf.index]
    }

    /// Returns where the values of a column in a row group lie, and the number of rows.
    pub(super) fn chunk(&self, group: usize, leaf: &Leaf) -> (Chunk, u64) {
        let group = &self.footer.groups[group];
        (group.chunks[leaf.index], group.rows)
    }

    /// Reads bytes of the file.
    pub(super) fn bytes(&self, at: u64, count: u64) -> Result<Vec<u8>, Damage> {
        if at.checked_add(count).is_none_or(|end| end > self.size) {
            return Err(Damage::new(self.size, "the file ends too early"));
        }
        let mut bytes = vec![0; count as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| Damage::unreadable(at, &error))?;
        Ok(bytes)
    }

    /// Reads a compressed page.
    pub(super) fn unpack(&self, page: &PackedPage) -> Result<Vec<u8>, Damage> {
        self.charge(page.offset, page.unpacked)?;
        page.read(&self.file).map_err(|error| Damage::unreadable(page.offset, &error))
    }

    /// Counts bytes that are unpacked, or copied from a dictionary.
    pub(super) fn charge(&self, at: u64, bytes: u64) -> Result<(), Damage> {
        let taken = self.budget.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes));
        taken
            .map(drop)
            .map_err(|_| Damage::new(at, format!("the file unpacks to more than {MAX_UNPACK_RATIO} times its size")))
    }
}
