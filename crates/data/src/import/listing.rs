//! The options of an import and its result.

use std::path::PathBuf;

use plimsoll_core::Seconds;

use super::format::Format;
use crate::issue::{Issue, SourceLocation};

/// Facts about a corpus that its files do not contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportOptions {
    /// The layout. Default: found out from the files, see [`Format::detect`].
    pub format: Option<Format>,
    /// The folder that relative audio paths start from. Default: the folder of the list.
    ///
    /// Kaldi and Lhotse write paths relative to the folder that their recipe ran in, so they often need it. Subfolders of
    /// the corpus have the same place below this folder. [`Format::Folder`] ignores it: its audio files are the list.
    pub audio_root: Option<PathBuf>,
    /// The speaker of utterances whose list names none.
    pub speaker: Option<String>,
    /// The language of utterances whose list names none.
    pub language: Option<String>,
}

/// One utterance as a corpus lists it. Its audio has not been looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name, unique in the listing and never empty.
    pub id: String,
    /// The audio file, which may be missing.
    pub audio: PathBuf,
    /// Where the utterance starts in the file.
    pub offset: Seconds,
    /// The listed duration; `None` means up to the end of the file.
    pub duration: Option<Seconds>,
    /// The spoken text: one line, never empty.
    pub text: String,
    /// The name of the speaker, where known.
    pub speaker: Option<String>,
    /// The language, where known.
    pub language: Option<String>,
    /// Where it is listed.
    pub location: SourceLocation,
}

/// An imported corpus: every utterance is an entry or an issue.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// The layout of the corpus.
    pub format: Format,
    /// The folder of the corpus.
    pub root: PathBuf,
    /// The utterances, in the order of the lists.
    pub entries: Vec<Entry>,
    /// What could not be read, in the order of reading; at most a million.
    pub issues: Vec<Issue>,
    /// Number of issues beyond that million.
    pub more_issues: usize,
}
