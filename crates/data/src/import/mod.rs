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

use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

pub use format::Format;
pub use trouble::{ImportError, Place, Problem, Trouble};

use gathering::Gathering;

/// What a person knows about a corpus beyond what its files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportOptions {
    /// How it is laid out; `None` looks.
    pub format: Option<Format>,
    /// Where relative audio paths start, instead of the list's folder.
    ///
    /// Kaldi and Lhotse write paths from the folder their recipe ran in, so they often need it. Below it lies what lies
    /// below the corpus's folder; for [`Format::Folder`], where the audio is the list, it says nothing.
    pub audio_root: Option<PathBuf>,
    /// Who speaks, for utterances that name nobody.
    pub speaker: Option<String>,
    /// Which language is spoken, for utterances that name none.
    pub language: Option<String>,
}

/// One utterance as a corpus lists it; nobody has looked at its audio.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name, unique in the listing and never empty.
    pub id: String,
    /// The audio file, which need not exist.
    pub audio: PathBuf,
    /// Where the utterance begins in the file.
    pub offset: Seconds,
    /// How long it is, where the corpus says so; otherwise it lasts to the end of the file.
    pub duration: Option<Seconds>,
    /// What is said, never empty, in one line.
    pub text: String,
    /// Who says it.
    pub speaker: Option<String>,
    /// In which language.
    pub language: Option<String>,
    /// Where it was listed.
    pub place: Place,
}

/// A corpus, read: every utterance is an entry or a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// How the corpus is laid out.
    pub format: Format,
    /// Its folder.
    pub root: PathBuf,
    /// The utterances, in the order of the corpus.
    pub entries: Vec<Entry>,
    /// What could not be used, in the order it was met; a million at most.
    pub problems: Vec<Problem>,
    /// How many problems more there were.
    pub more_problems: usize,
}

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
