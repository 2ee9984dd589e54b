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

pub(crate) use file::ParquetFile;
pub(crate) use writer::{CellKind, Cells, ColumnSpec, ParquetWriter};

/// First and last bytes of a file.
const MAGIC: &[u8] = b"PAR1";

use crate::columns::{ColumnFile, Leaf, Values};
use column::Column;

impl ColumnFile for ParquetFile {
    fn leaves(&self) -> &[Leaf] {
        &self.footer.leaves
    }

    fn groups(&self) -> Vec<u64> {
        self.footer.groups.iter().map(|group| group.rows).collect()
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.footer.facts.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    fn values<'a>(&'a self, group: usize, leaf: &'a Leaf) -> Values<'a> {
        Box::new(Column::values(self, group, leaf))
    }

    fn places<'a>(&'a self, group: usize, leaf: &'a Leaf) -> Values<'a> {
        Box::new(Column::places(self, group, leaf))
    }
}

#[cfg(test)]
mod tests;
