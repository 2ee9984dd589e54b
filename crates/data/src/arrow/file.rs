//! An open Arrow file: a stream of messages, each with a batch of rows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plimsoll_core::open_regular_file;

use super::flatbuffer::Fields;
use super::schema::{ColumnPlace, Schema, SchemaProblem};
use crate::columns::{Damage, Leaf};

/// First bytes of a file with its batches listed at its end. The messages of a stream follow.
const MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// First bytes of a message, behind which its length stands.
const MESSAGE: [u8; 4] = [0xff; 4];
/// Longest description of a batch. One of ten thousand columns is shorter.
const MAX_DESCRIPTION: u64 = 16 << 20;

/// Open file whose messages were read, but not their values.
#[derive(Debug)]
pub(crate) struct ArrowFile {
    file: File,
    size: u64,
    pub(super) schema: Schema,
    pub(super) batches: Vec<Batch>,
    /// Damage that ends the file too early. The batches before it are read.
    pub(super) damage: Option<Damage>,
}

/// Rows that are stored together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) rows: u64,
    /// Position in the file and number of bytes of each buffer.
    pub(super) buffers: Vec<(u64, u64)>,
}

/// A message of the stream.
struct Message {
    description: Vec<u8>,
    /// Position of what follows the description.
    body: u64,
}

impl ArrowFile {
    /// Opens a file, and finds its batches.
    pub(crate) fn open(path: &Path) -> io::Result<Result<Self, Damage>> {
        let file = open_regular_file(path)?;
        let size = file.metadata()?.len();
        let mut open = Self { file, size, schema: Schema::default(), batches: Vec::new(), damage: None };
        Ok(open.read_messages().map(|()| open))
    }

    /// Reads all messages. An error before the first batch is one of the file.
    fn read_messages(&mut self) -> Result<(), Damage> {
        let is_file = self.size >= 8 && self.bytes(0, 8)? == MAGIC;
        let mut at = if is_file { MAGIC.len() as u64 } else { 0 };
        let (mut has_schema, mut rows, mut counted) = (false, 0u64, 0);
        loop {
            let result = self.message(at).and_then(|message| match message {
                Some(message) => self.take(at, &message, &mut has_schema).map(Some),
                None => Ok(None),
            });
            match result {
                Ok(Some(next)) => at = next,
                Ok(None) if !has_schema => return Err(Damage::new(at, "it names no columns")),
                Ok(None) => return Ok(()),
                Err(damage) if self.batches.is_empty() => return Err(damage),
                Err(damage) => {
                    self.damage = Some(damage);
                    return Ok(());
                }
            }
            // Each row has a place of its audio, so it has a byte or more.
            let new = self.batches[counted..].iter().map(|batch| batch.rows);
            rows = new.fold(rows, u64::saturating_add);
            counted = self.batches.len();
            if rows > self.size {
                return Err(Damage::new(at, "there are more rows than bytes"));
            }
        }
    }

    /// Reads the message at `at`; `None` at the end of the stream.
    fn message(&self, at: u64) -> Result<Option<Message>, Damage> {
        if at == self.size {
            return Ok(None);
        }
        let cut = || Damage::new(at, "the file ends inside a message, so it may be cut short");
        let head = self.bytes(at, 8.min(self.size - at))?;
        let (length, start) = match head.split_first_chunk::<4>().ok_or_else(cut)? {
            (&MESSAGE, rest) => (*rest.first_chunk::<4>().ok_or_else(cut)?, at + 8),
            // As before version 0.15.
            (length, _) => (*length, at + 4),
        };
        let length = u64::from(u32::from_le_bytes(length));
        if length == 0 {
            return Ok(None);
        }
        if length > MAX_DESCRIPTION {
            return Err(Damage::new(at, "it has no message of Arrow here"));
        }
        let body = start + length;
        if body > self.size {
            return Err(cut());
        }
        Ok(Some(Message { description: self.bytes(start, length)?, body }))
    }

    /// Takes a message, and returns the position of the next.
    fn take(&mut self, at: u64, message: &Message, has_schema: &mut bool) -> Result<u64, Damage> {
        let broken = || Damage::new(at, "the description of a message makes no sense");
        let fields = Fields::root(&message.description).ok_or_else(broken)?;
        let length = u64::try_from(fields.i64(3)).map_err(|_| broken())?;
        let next = message.body.checked_add(length).filter(|end| *end <= self.size);
        let next = next.ok_or_else(|| Damage::new(at, "the file ends inside a message, so it may be cut short"))?;
        let header = || fields.table(2).ok_or_else(broken);
        match (fields.u8(1), *has_schema) {
            // The columns.
            (1, false) => {
                self.schema = Schema::read(header()?).map_err(|problem| match problem {
                    SchemaProblem::Broken => Damage::new(at, "the description of the columns makes no sense"),
                    SchemaProblem::Unread(problem) => Damage::new(at, problem),
                })?;
                *has_schema = true;
            }
            // A dictionary, whose columns are not read.
            (2, true) => {}
            // Rows.
            (3, true) => {
                let batch = self.batch(header()?, message.body, length).map_err(|problem| Damage::new(at, problem))?;
                self.batches.push(batch);
            }
            _ => return Err(broken()),
        }
        Ok(next)
    }

    fn batch(&self, fields: Fields<'_>, body: u64, length: u64) -> Result<Batch, String> {
        if let Some(compression) = fields.table(3) {
            let name = ["LZ4", "Zstandard"].get(usize::from(compression.u8(0))).copied().unwrap_or("another method");
            return Err(format!(
                "its values are compressed by {name}, which is not read; write it without compression"
            ));
        }
        let broken = || "the description of its rows makes no sense".to_owned();
        let rows = u64::try_from(fields.i64(0)).map_err(|_| broken())?;
        let pairs = fields.pairs(2).filter(|pairs| pairs.len() == self.schema.buffers).ok_or_else(broken)?;
        let buffer = |(offset, size): (i64, i64)| {
            let (offset, size) = (u64::try_from(offset).ok()?, u64::try_from(size).ok()?);
            let is_inside = offset.checked_add(size).is_some_and(|end| end <= length);
            is_inside.then_some((body + offset, size))
        };
        let buffers = pairs.into_iter().map(buffer).collect::<Option<Vec<_>>>().ok_or_else(broken)?;
        Ok(Batch { rows, buffers })
    }

    /// Reads bytes of the file.
    pub(super) fn bytes(&self, at: u64, length: u64) -> Result<Vec<u8>, Damage> {
        if at.checked_add(length).is_none_or(|end| end > self.size) {
            return Err(Damage::new(at, "the file ends inside a value"));
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(|error| Damage::unreadable(at, &error))?;
        Ok(bytes)
    }

    pub(super) fn place(&self, leaf: &Leaf) -> &ColumnPlace {
        &self.schema.places[leaf.index]
    }

    pub(super) fn batch_of(&self, group: usize) -> &Batch {
        &self.batches[group]
    }
}
