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

#[cfg(test)]
mod tests;
