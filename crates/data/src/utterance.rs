//! One utterance of a corpus.

use std::path::PathBuf;

use plimsoll_core::Seconds;

/// One utterance: a stretch of an audio file and what is said in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// Its name, unique in the manifest; randomness is drawn by it, so it should not change.
    pub id: String,
    /// The audio file.
    pub audio: PathBuf,
    /// Where it begins in the file.
    pub offset: Seconds,
    /// How long it is.
    pub duration: Seconds,
    /// What is said, as written in the manifest.
    pub text: String,
    /// Who says it.
    pub speaker: Option<String>,
    /// In which language.
    pub language: Option<String>,
}
