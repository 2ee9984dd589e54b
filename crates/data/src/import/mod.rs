//! Corpora as people have them on disk: nine layouts read into one list of utterances, and what is wrong named by line.
//!
//! Reading is lenient. A line that makes no sense is a [`Problem`] with its [`Place`] and costs that line alone; only
//! what makes the whole corpus unreadable is an [`ImportError`]. No audio file is opened here, and none is asked
//! whether it exists: an [`Entry`] is what a list promises.
//!
//! The order is that of the lists; folders are walked in the order of their names. Ids are unique: the first utterance
//! keeps its id, a later one with the same id is a problem. What comes from a stranger is bounded: lines, texts, names,
//! the number of problems that are kept, and how far a compressed list may unfold.
//!
//! ```
//! use plimsoll_data::{Format, ImportOptions, import};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("metadata.csv"), "a|Dr. Who|Doctor Who\nb\n")?;
//! let listing = import(folder.path(), &ImportOptions::default())?;
//! assert_eq!((listing.format, listing.entries[0].text.as_str()), (Format::LjSpeech, "Doctor Who"));
//! assert!(listing.problems[0].to_string().ends_with(
//!     "metadata.csv:2: expected `id|text` or `id|text|normalised`; columns found: 1"
//! ));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod format;
mod listing;
mod trouble;

mod csv;
mod gathering;
mod json;
mod lines;
mod walk;

mod common_voice;
mod detect;
mod folder;
mod hugging_face;
mod kaldi;
mod lhotse;
mod librispeech;
mod libritts;
mod ljspeech;
mod manifest;

use std::path::Path;

pub use format::Format;
pub use listing::{Entry, ImportOptions, Listing};
pub use trouble::{ImportError, Place, Problem, Trouble};

use gathering::Gathering;

/// Reads the lists of a corpus: a file or a folder in one of the layouts of [`Format`].
pub fn import(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Listing, ImportError> {
    let path = path.as_ref();
    if !path.exists() {
        return Err(ImportError::NotFound(path.into()));
    }
    let format = options.format.or_else(|| Format::detect(path)).ok_or_else(|| detect::unknown(path))?;
    let mut gathering = Gathering::new(format, path, options);
    let read = match format {
        Format::Manifest => manifest::read,
        Format::LjSpeech => ljspeech::read,
        Format::LibriSpeech => librispeech::read,
        Format::LibriTts => libritts::read,
        Format::CommonVoice => common_voice::read,
        Format::Kaldi => kaldi::read,
        Format::Lhotse => lhotse::read,
        Format::HuggingFace => hugging_face::read,
        Format::Folder => folder::read,
    };
    read(&mut gathering, path)?;
    gathering.finish(path)
}

#[cfg(test)]
mod tests;
