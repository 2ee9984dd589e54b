//! Why a corpus cannot be made.

use std::io;
use std::path::PathBuf;

/// Why a corpus cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// No utterance was asked for.
    #[error("a corpus needs at least one utterance")]
    NoUtterances,
    /// No speaker was asked for.
    #[error("a corpus needs at least one speaker")]
    NoSpeakers,
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// Why it was not.
        source: io::Error,
    },
    /// The program is not there.
    #[error(
        "espeak-ng is not installed: on Debian or Ubuntu run `apt-get install espeak-ng`, on macOS `brew install \
         espeak-ng`; the `formant` engine needs no program"
    )]
    EspeakMissing,
    /// The program is there but did not do its work.
    #[error("espeak-ng cannot say `{text}`: {message}")]
    EspeakFailed {
        /// What it was to say.
        text: String,
        /// What it said instead.
        message: String,
    },
    /// The program has no such voice.
    #[error("espeak-ng has no voice for `{language}`; it has {}", known.join(", "))]
    UnknownLanguage {
        /// The language asked for.
        language: String,
        /// The languages it has.
        known: Vec<String>,
    },
    /// The language has a voice, but we have no words for it.
    #[error("there is no word list for `{language}`; there is one for {}", known.join(", "))]
    NoWords {
        /// The language asked for.
        language: String,
        /// The languages that have one.
        known: Vec<String>,
    },
}
