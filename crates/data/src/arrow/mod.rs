//! Arrow files, as `datasets` of Hugging Face saves them to disk: streams of messages, also with a list at the end.
//!
//! A reader of our own, as for Parquet: an utterance is named by its bytes in the file. Only what is needed for columns of
//! numbers, texts and bytes is read. Every number of a file is compared with its size before it decides about memory.

mod column;
mod file;
mod flatbuffer;
mod schema;

pub(crate) use file::ArrowFile;

use crate::columns::{ColumnFile, Damage, Leaf, Values};
use column::ArrowColumn;

impl ColumnFile for ArrowFile {
    fn leaves(&self) -> &[Leaf] {
        &self.schema.leaves
    }

    fn groups(&self) -> Vec<u64> {
        self.batches.iter().map(|batch| batch.rows).collect()
    }

    fn fact(&self, name: &str) -> Option<&str> {
        self.schema.facts.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    fn values<'a>(&'a self, group: usize, leaf: &'a Leaf) -> Values<'a> {
        Box::new(ArrowColumn::new(self, group, leaf, false))
    }

    fn places<'a>(&'a self, group: usize, leaf: &'a Leaf) -> Values<'a> {
        Box::new(ArrowColumn::new(self, group, leaf, true))
    }

    fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }
}

#[cfg(test)]
mod tests;
