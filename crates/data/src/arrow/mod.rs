//! Arrow files, as `datasets` of Hugging Face saves them to disk: streams of messages, also with a list at the end.
//!
//! A reader of our own, as for Parquet: an utterance is named by its bytes in the file. Only what is needed for columns of
//! numbers, texts and bytes is read. Every number of a file is compared with its size before it decides about memory.

mod column;
mod file;
mod flatbuffer;
mod schema;

pub(crate) use file::ArrowFile;

#[cfg(test)]
mod tests;
