//! Bytes of a model: in memory, or mapped from a file.

use std::io;
use std::path::Path;

use memmap2::Mmap;
use plimsoll_core::open_regular_file;

/// Bytes of a model. Every read checks its bounds: a position behind the end reads as zero, so a damaged file gives
/// wrong scores at worst.
#[derive(Debug)]
pub(crate) enum ModelBytes {
    Owned(Vec<u8>),
    Mapped(Mmap),
}

impl ModelBytes {
    /// Maps the file at `path`.
    pub(crate) fn map(path: &Path) -> io::Result<Self> {
        let file = open_regular_file(path)?;
        // SAFETY: mapped bytes must not change while a slice of them is in use. This crate writes a model into a new file
        // and renames it over the old one, so a mapped file is never written to: its bytes stay until it is unmapped. If
        // another program changes bytes in place, scores become wrong; any bits are valid numbers and every position is
        // checked, so memory safety does not depend on them. If another program truncates the file in place, a later read
        // ends the process with SIGBUS, as for every mapped file.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self::Mapped(map))
    }

    pub(crate) fn all(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.all().len() as u64
    }

    /// Returns `size` bytes at `at`; nothing if they are not there.
    pub(crate) fn slice(&self, at: u64, size: u64) -> Option<&[u8]> {
        let end = at.checked_add(size)?;
        self.all().get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)
    }

    fn array<const N: usize>(&self, at: u64) -> [u8; N] {
        let start = usize::try_from(at).unwrap_or(usize::MAX);
        let bytes = self.all().get(start..start.saturating_add(N));
        bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    pub(crate) fn u8(&self, at: u64) -> u8 {
        self.array::<1>(at)[0]
    }

    pub(crate) fn u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// Reads an integer of 40 bits.
    pub(crate) fn u40(&self, at: u64) -> u64 {
        let [a, b, c, d, e] = self.array(at);
        u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
    }

    pub(crate) fn f32(&self, at: u64) -> f32 {
        f32::from_le_bytes(self.array(at))
    }
}
