//! Utterances of a corpus.

use std::path::PathBuf;

use plimsoll_core::Seconds;

/// Segment of an audio file, with the text spoken in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Utterance {
    /// Id of the utterance, unique in the manifest. Augmentation and splits are keyed by it: another id gives other
    /// random numbers.
    pub id: String,
    /// Audio file that contains the utterance.
    pub audio: PathBuf,
    /// Start of the utterance in the audio file.
    pub offset: Seconds,
    /// Duration of the utterance.
    pub duration: Seconds,
    /// Spoken text, as written in the manifest: not normalized.
    pub text: String,
    /// Name of the speaker, if known.
    pub speaker: Option<String>,
    /// Language of the utterance, if known.
    pub language: Option<String>,
}
