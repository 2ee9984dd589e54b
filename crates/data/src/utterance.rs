//! One utterance of a corpus.

use std::path::PathBuf;

use plimsoll_core::Seconds;

/// A segment of an audio file and the text spoken in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// Its name, unique in the manifest. Augmentation and splits are keyed by it: another id gives other random numbers.
    pub id: String,
    /// The audio file.
    pub audio: PathBuf,
    /// Where the utterance starts in the file.
    pub offset: Seconds,
    /// How long it is.
    pub duration: Seconds,
    /// The spoken text, as written in the manifest: not normalized.
    pub text: String,
    /// The name of the speaker, where known.
    pub speaker: Option<String>,
    /// The language, where known.
    pub language: Option<String>,
}
