//! Errors of making a corpus.

use std::io;
use std::path::PathBuf;

/// Reason why a corpus cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The corpus options ask for zero utterances.
    #[error("a corpus needs at least one utterance")]
    NoUtterances,
    /// The corpus options ask for zero speakers.
    #[error("a corpus needs at least one speaker")]
    NoSpeakers,
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// File or folder that cannot be written.
        path: PathBuf,
        /// Error of the operating system.
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
        /// Text that espeak-ng failed to speak.
        text: String,
        /// Error message of espeak-ng, or description of the fault in its output.
        message: String,
    },
    /// The engine does not know when it says a word.
    #[error("only the `formant` engine knows when it says each word")]
    NoTimes,
    /// espeak-ng has no voice for the language.
    #[error("espeak-ng has no voice for `{language}`; it has {}", known.join(", "))]
    UnknownLanguage {
        /// Requested language, for which espeak-ng has no voice.
        language: String,
        /// Languages that espeak-ng supports.
        known: Vec<String>,
    },
    /// espeak-ng has a voice for the language, but this crate has no word list for it.
    #[error("there is no word list for `{language}`; there is one for {}", known.join(", "))]
    NoWords {
        /// Requested language, for which this crate has no word list.
        language: String,
        /// Languages for which this crate has a word list.
        known: Vec<String>,
    },
}
