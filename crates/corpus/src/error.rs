//! Errors of making a corpus.

use std::io;
use std::path::PathBuf;

/// Why a corpus cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The options ask for zero utterances.
    #[error("a corpus needs at least one utterance")]
    NoUtterances,
    /// The options ask for zero speakers.
    #[error("a corpus needs at least one speaker")]
    NoSpeakers,
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The program espeak-ng is not installed.
    #[error(
        "espeak-ng is not installed: on Debian or Ubuntu run `apt-get install espeak-ng`, on macOS `brew install \
         espeak-ng`; the `formant` engine needs no program"
    )]
    EspeakMissing,
    /// The program espeak-ng failed.
    #[error("espeak-ng cannot say `{text}`: {message}")]
    EspeakFailed {
        /// The text to be spoken.
        text: String,
        /// Error message of the program, or what is wrong with its output.
        message: String,
    },
    /// espeak-ng has no voice for the language.
    #[error("espeak-ng has no voice for `{language}`; it has {}", known.join(", "))]
    UnknownLanguage {
        /// The requested language.
        language: String,
        /// The languages it has.
        known: Vec<String>,
    },
    /// espeak-ng has a voice for the language, but this crate has no word list for it.
    #[error("there is no word list for `{language}`; there is one for {}", known.join(", "))]
    NoWords {
        /// The requested language.
        language: String,
        /// The languages with a word list.
        known: Vec<String>,
    },
}
