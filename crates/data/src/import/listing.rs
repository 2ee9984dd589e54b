//! What an import can be asked for, and the list that it makes.

use std::path::PathBuf;

use plimsoll_core::Seconds;

use super::format::Format;
use super::trouble::{Place, Problem};

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
