//! Bytes that are appended once and then read: the first in memory, the others in a temporary file.

use std::env;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use memmap2::{Mmap, MmapOptions};

/// Size from which on a block is full.
const BLOCK_BYTES: usize = 4 << 20;

/// Number of bytes that stay in memory. A list of about 300,000 utterances needs no file.
const MAX_MEMORY_BYTES: usize = 48 << 20;

/// Bytes in blocks. A part lies in one block.
#[derive(Debug, Default)]
pub(super) struct Blob {
    blocks: Vec<Block>,
    /// Index of the block that `append` fills, if there is one.
    open: Option<usize>,
    in_memory: usize,
    file: Option<TemporaryFile>,
    /// Whether the file could not be written, so that all further blocks stay in memory.
    has_failed: bool,
}

#[derive(Debug)]
enum Block {
    Memory(Vec<u8>),
    Mapped(Mmap),
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Mapped(map) => map,
        }
    }
}

#[derive(Debug)]
struct TemporaryFile {
    file: File,
    size: u64,
}

/// Position of a part: the block in the upper half, the byte in the block in the lower half.
pub(super) type Position = u64;

fn position(block: usize, byte: usize) -> Position {
    let half = |number| u32::try_from(number).expect("a block has less than 4 GiB, and there are less than 4 billion");
    u64::from(half(block)) << 32 | u64::from(half(byte))
}

impl Blob {
    /// Appends a part that `write` writes.
    pub(super) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Position {
        let index = *self.open.get_or_insert_with(|| {
            self.blocks.push(Block::Memory(Vec::new()));
            self.blocks.len() - 1
        });
        let Block::Memory(bytes) = &mut self.blocks[index] else { unreachable!("an open block is in memory") };
        let start = position(index, bytes.len());
        write(bytes);
        if bytes.len() >= BLOCK_BYTES {
            self.seal();
        }
        start
    }

    /// Adds a block of many parts, and returns the position of its first byte.
    pub(super) fn push_block(&mut self, bytes: Vec<u8>) -> Position {
        let block = self.stored(bytes);
        self.blocks.push(block);
        position(self.blocks.len() - 1, 0)
    }

    /// Ends the open block.
    pub(super) fn seal(&mut self) {
        let Some(index) = self.open.take() else { return };
        if let Block::Memory(bytes) = std::mem::replace(&mut self.blocks[index], Block::Memory(Vec::new())) {
            self.blocks[index] = self.stored(bytes);
        }
    }

    /// Makes a blob of blocks in a file.
    pub(super) fn from_blocks(blocks: Vec<Mmap>) -> Self {
        Self { blocks: blocks.into_iter().map(Block::Mapped).collect(), ..Self::default() }
    }

    /// Returns the blocks in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &[u8]> {
        self.blocks.iter().map(Block::bytes)
    }

    /// Returns the bytes of a block from a position on; `None` behind the end.
    pub(super) fn get(&self, position: Position) -> Option<&[u8]> {
        self.blocks.get((position >> 32) as usize)?.bytes().get(position as u32 as usize..)
    }

    /// Returns the bytes of a block from a position on.
    pub(super) fn from(&self, position: Position) -> &[u8] {
        &self.blocks[(position >> 32) as usize].bytes()[position as u32 as usize..]
    }

    fn stored(&mut self, mut bytes: Vec<u8>) -> Block {
        if self.has_failed || self.in_memory + bytes.len() <= MAX_MEMORY_BYTES {
            self.in_memory += bytes.len();
            bytes.shrink_to_fit();
            return Block::Memory(bytes);
        }
        match self.write(&bytes) {
            Ok(map) => Block::Mapped(map),
            Err(error) => {
                tracing::warn!(%error, "a long list stays in memory, because no temporary file can be written");
                self.has_failed = true;
                Block::Memory(bytes)
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<Mmap> {
        let temporary = match &mut self.file {
            Some(file) => file,
            none => none.insert(TemporaryFile { file: tempfile::tempfile_in(temporary_folder())?, size: 0 }),
        };
        temporary.file.write_all_at(bytes, temporary.size)?;
        // SAFETY: mapped bytes must not change. The file has no name, so no other program opens it, and this program only
        // appends behind the mapped range.
        let map = unsafe { MmapOptions::new().offset(temporary.size).len(bytes.len()).map(&temporary.file)? };
        temporary.size += bytes.len() as u64;
        Ok(map)
    }
}

/// Returns the folder of temporary files: `TMPDIR`, or `/var/tmp`, because `/tmp` is often in memory.
fn temporary_folder() -> PathBuf {
    let on_disk = PathBuf::from("/var/tmp");
    if env::var_os("TMPDIR").is_none() && on_disk.is_dir() { on_disk } else { env::temp_dir() }
}

/// Appends a number in as few bytes as it needs: seven bits a byte, LEB128.
pub(super) fn write_count(bytes: &mut Vec<u8>, mut count: usize) {
    while count >= 0x80 {
        bytes.push(count as u8 | 0x80);
        count >>= 7;
    }
    bytes.push(count as u8);
}

/// Appends the length of `part`, and `part` itself.
pub(super) fn write_part(bytes: &mut Vec<u8>, part: &[u8]) {
    write_count(bytes, part.len());
    bytes.extend_from_slice(part);
}

/// Reader of what `write_part` and others wrote.
pub(super) struct Parts<'a>(pub(super) &'a [u8]);

impl<'a> Parts<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    pub(super) fn part(&mut self) -> &'a [u8] {
        let (mut count, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            count |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return self.bytes(count);
            }
        }
    }

    /// Returns the next part of bytes that may be anything; `None` if it does not end.
    pub(super) fn checked_part(&mut self) -> Option<&'a [u8]> {
        let (mut count, mut shift) = (0_usize, 0);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            count |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                let (part, rest) = self.0.split_at_checked(count)?;
                self.0 = rest;
                return Some(part);
            }
            if shift > 28 {
                return None;
            }
        }
    }

    pub(super) fn text(&mut self) -> &'a str {
        let text = self.part();
        debug_assert!(std::str::from_utf8(text).is_ok(), "texts are written as UTF-8");
        // SAFETY: `Record::write` is the only writer, and its texts are `str`. They lie in memory, in a file without a name,
        // which nothing else writes, or in an index whose texts were checked when it was opened, and which is replaced and
        // never changed. To check them each time took a twentieth of the start on a long list.
        unsafe { std::str::from_utf8_unchecked(text) }
    }
}

/// Appends an optional number of four bytes.
pub(super) fn write_optional(bytes: &mut Vec<u8>, number: Option<u32>) {
    bytes.extend(number.map(u32::to_le_bytes).iter().flatten());
}

/// Joins two positions: that of a block, and that of a byte in it.
pub(super) fn within(block: Position, byte: u32) -> Position {
    block + u64::from(byte)
}
