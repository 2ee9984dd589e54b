//! Import: reads the lists of a corpus in one of twelve layouts into one list of utterances.
//!
//! Reading is lenient. A line that makes no sense becomes an [`Issue`](crate::Issue) with its
//! [`SourceLocation`](crate::SourceLocation) and costs only that line; an [`ImportError`] means that the whole corpus
//! cannot be read. Audio files are not opened, and may be missing: an [`Entry`] is unchecked.
//!
//! Entries keep the order of the lists; folders are read in the order of their names. Ids are unique: the first
//! utterance keeps its id, and a later one with the same id becomes an issue. Memory is bounded for hostile input too:
//! lines, texts, names, the number of kept issues, and the unpacked size of compressed lists all have limits.
//!
//! ```
//! use plimsoll_data::{Format, ImportOptions, import};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("metadata.csv"), "a|Dr. Who|Doctor Who\nb\n")?;
//! let listing = import(folder.path(), &ImportOptions::default())?;
//! assert_eq!((listing.format, listing.entries[0].text.as_str()), (Format::LjSpeech, "Doctor Who"));
//! assert!(listing.issues[0].to_string().ends_with(
//!     "metadata.csv:2: expected `id|text` or `id|text|normalized`; columns found: 1"
//! ));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod format;
mod listing;

mod entries;

mod builder;
mod csv;
mod json;
mod lines;
mod shards;
mod tables;
mod tar_members;
mod walk;

mod arrow;
mod common_voice;
mod folder;
mod hugging_face;
mod kaldi;
mod lhotse;
mod librispeech;
mod libritts;
mod ljspeech;
mod manifest;
mod parquet;
mod webdataset;

mod detect;
mod index;
mod unlisted;
mod unpack;
mod watch;

use std::io;
use std::path::Path;

use plimsoll_core::{counted, regular_file_metadata};

pub use error::ImportError;
pub use format::Format;
pub use index::{IndexError, index_list};
pub(crate) use kaldi::OWN_ID_TABLE;
pub(crate) use listing::OWN_ID;
pub use listing::{Entry, ImportOptions, Listing};
pub use watch::{ImportWatch, ListIndex};

pub(crate) use builder::Imported;
use builder::ListingBuilder;
pub(crate) use entries::Entries;

/// Reads the lists of a corpus: a file or a folder in one of the layouts of [`Format`].
///
/// # Errors
/// When the path does not exist, has none of the layouts or not the layout in `options`, when a required list cannot be
/// opened, or when the corpus is empty. Bad lines are no error; they become [`issues`](Listing::issues).
pub fn import(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Listing, ImportError> {
    read_lists(path.as_ref(), options).map(Listing::from)
}

/// Reads the lists of a corpus into a table.
pub(crate) fn read_lists(path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    if !path.is_dir() && !shards::is_pattern(path) {
        regular_file_metadata(path).map_err(|source| unreadable(path, source))?;
    }
    let format = options.format.or_else(|| Format::detect(path)).ok_or_else(|| detect::unknown(path))?;
    if format == Format::Folder && options.format.is_none() && path.is_dir() {
        let shards = shards::shards(path, shards::TAR).len();
        if shards > 0 {
            let count = counted(shards, "tar file");
            let folder = path.display();
            tracing::warn!(
                "{folder} has sounds with texts, and {count} beside them, not read; --format webdataset reads those"
            );
        }
    }
    // An index holds what is read without any option.
    let ImportOptions { audio_root, speaker, language, .. } = options;
    let is_plain = audio_root.is_none() && speaker.is_none() && language.is_none();
    if format == Format::Manifest
        && is_plain
        && let Some(list) = manifest::in_folder(path)
    {
        if let Some(entries) = index::open(&list) {
            let root = ListingBuilder::new(format, path, options).root;
            return Ok(Imported { format, root, entries, duplicates: vec![], issues: vec![], more_issues: 0 });
        }
        let is_long = |from: u64| std::fs::metadata(&list).is_ok_and(|metadata| metadata.len() >= from);
        if options.index_from.is_some_and(is_long) {
            return index::read_and_make(&list, path, options);
        }
    }
    read_listed(format, path, options)
}

/// Reads the lists of a corpus of a format into a table, without an index.
fn read_listed(format: Format, path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    let mut builder = ListingBuilder::new(format, path, options);
    let read = match format {
        Format::Manifest => manifest::read,
        Format::LjSpeech => ljspeech::read,
        Format::LibriSpeech => librispeech::read,
        Format::LibriTts => libritts::read,
        Format::CommonVoice => common_voice::read,
        Format::Kaldi => kaldi::read,
        Format::Lhotse => lhotse::read,
        Format::HuggingFace => hugging_face::read,
        Format::WebDataset => webdataset::read,
        Format::Parquet => parquet::read,
        Format::Arrow => arrow::read,
        Format::Folder => folder::read,
    };
    read(&mut builder, path)?;
    builder.finish(path)
}

impl From<Imported> for Listing {
    fn from(imported: Imported) -> Self {
        let Imported { format, root, entries, duplicates, issues, more_issues } = imported;
        Self { format, root, entries: entries.into_vec(), duplicates, issues, more_issues }
    }
}

impl From<Listing> for Imported {
    fn from(listing: Listing) -> Self {
        let Listing { format, root, entries, duplicates, issues, more_issues } = listing;
        Self { format, root, entries: entries.into_iter().collect(), duplicates, issues, more_issues }
    }
}

fn unreadable(path: &Path, source: io::Error) -> ImportError {
    match source.kind() {
        io::ErrorKind::NotFound => ImportError::NotFound(path.into()),
        _ => ImportError::Unreadable { file: path.into(), source },
    }
}

#[cfg(test)]
mod tests;
