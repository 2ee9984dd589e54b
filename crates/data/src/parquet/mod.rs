//! Parquet files: a reader of the columns that hold speech, and a writer.
//!
//! A reader of our own, and not the crate `parquet`: an utterance is named by its bytes in the file, or in a page of the
//! file, and that crate does not say where a page or a value lies. Columns without lists are read in the encodings that
//! `pyarrow` and `datasets` write. Every number of a file is compared with its size before it decides about memory.

mod column;
mod file;
mod levels;
mod page;
mod schema;
mod thrift;
mod writer;

use std::fmt;
use std::io;

pub(crate) use column::{Column, Value};
pub(crate) use file::ParquetFile;
pub(crate) use schema::Leaf;
pub(crate) use writer::{CellKind, Cells, ColumnSpec, ParquetWriter};

/// Damage of a file, or something in it that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Position in the file.
    pub(crate) at: u64,
    /// Description of the damage.
    pub(crate) problem: String,
}

impl Damage {
    fn new(at: u64, problem: impl fmt::Display) -> Self {
        Self { at, problem: problem.to_string() }
    }

    fn unreadable(at: u64, error: &io::Error) -> Self {
        Self::new(at, error)
    }
}

/// First and last bytes of a file.
const MAGIC: &[u8] = b"PAR1";

#[cfg(test)]
mod tests;
