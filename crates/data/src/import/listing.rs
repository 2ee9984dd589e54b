//! Options of an import, and its result.

use std::path::PathBuf;

use plimsoll_core::Seconds;

use super::format::Format;
use super::watch::ImportWatch;
use crate::issue::{Issue, SourceLocation};
use crate::unpack::UnpackFolder;

/// Key of the id of an utterance that this crate has packed. Names in a shard cannot have all characters of an id, and
/// other programs mean other things by `id`.
pub(crate) const OWN_ID: &str = "utterance_id";

/// Options of an import: facts about a corpus that its files do not contain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportOptions {
    /// Layout of the corpus. Default: detected from the files, see [`Format::detect`].
    pub format: Option<Format>,
    /// Folder that relative audio paths start from. Default: the folder of the list.
    ///
    /// Kaldi and Lhotse write paths relative to the folder that their recipe ran in, so their corpora often need this
    /// option. Subfolders of the corpus have the same place below this folder. [`Format::Folder`] ignores the option:
    /// its audio files are the list.
    pub audio_root: Option<PathBuf>,
    /// Speaker of utterances whose list names no speaker; `None` leaves the speaker unknown.
    pub speaker: Option<String>,
    /// Language of utterances whose list names no language; `None` leaves the language unknown.
    pub language: Option<String>,
    /// Folder into which compressed tar shards are unpacked; without it, they are issues.
    pub unpack: Option<UnpackFolder>,
    /// Size in bytes from which a list of JSON lines gets an index beside it when it is read, which the next import takes; `None`
    /// makes none.
    pub index_from: Option<u64>,
    /// Watches the import.
    pub watch: ImportWatch,
}

/// One utterance as listed in a corpus. Its audio has not been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Id of the utterance, unique in the listing and never empty.
    pub id: String,
    /// Audio file of the utterance, which may be missing.
    pub audio: PathBuf,
    /// Start of the utterance in the audio file.
    pub offset: Seconds,
    /// Listed duration of the utterance; `None` means up to the end of the file.
    pub duration: Option<Seconds>,
    /// Spoken text of the utterance: one line, never empty.
    pub text: String,
    /// Name of the speaker, if known.
    pub speaker: Option<String>,
    /// Language of the utterance, if known.
    pub language: Option<String>,
    /// Sample rate of the audio file according to the list, in hertz.
    pub rate: Option<u32>,
    /// Sample rate that the list reduces the audio to, in hertz; `None` if it keeps the rate of the file or raises it.
    pub resampled: Option<u32>,
    /// Place where the utterance is listed.
    pub location: SourceLocation,
}

/// An imported corpus: every utterance is an entry or an issue.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Layout of the corpus.
    pub format: Format,
    /// Folder of the corpus.
    pub root: PathBuf,
    /// Listed utterances, in the order of the lists.
    pub entries: Vec<Entry>,
    /// Valid utterances whose ids are already used by one of `entries`; each also has an issue. At most a million.
    pub duplicates: Vec<Entry>,
    /// Issues of lines and files that could not be read, in the order of reading; at most a million.
    pub issues: Vec<Issue>,
    /// Number of issues beyond the million that are kept.
    pub more_issues: usize,
}
