//! Phonemes of a text, from the program `espeak-ng`.

mod process;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use process::Process;
use runs::{Run, runs};

/// Program that makes phonemes of words.
const PROGRAM: &str = "espeak-ng";
/// Most runs of words whose phonemes are kept.
const KEPT_RUNS: usize = 1 << 17;
/// Most processes that wait for the next words.
const IDLE_PROCESSES: usize = 16;

/// Converts texts to phonemes in the International Phonetic Alphabet, as the program `espeak-ng` reads them in one of its voices.
///
/// Marks that shape how a sentence is read, such as `,` and `?`, stay between the phonemes; other marks are dropped. The
/// program starts with the first text, and its processes serve all clones. It must be installed wherever texts are converted.
///
/// ```no_run
/// use plimsoll_text::Phonemizer;
///
/// let phonemizer = Phonemizer::new("en-us");
/// assert_eq!(phonemizer.apply("Hello, world!")?, "həlˈoʊ, wˈɜːld!");
/// # Ok::<(), plimsoll_text::PhonemeError>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "SavedPhonemizer", into = "SavedPhonemizer")]
pub struct Phonemizer {
    voice: String,
    shared: Arc<Mutex<Shared>>,
}

/// What all clones of a phonemizer share.
#[derive(Default)]
struct Shared {
    idle: Vec<Process>,
    known: HashMap<String, String>,
}

/// Reason why a text cannot be converted to phonemes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PhonemeError {
    /// The program cannot be started. Holds the reason of the system.
    #[error("the program `{PROGRAM}`, which makes phonemes of texts, cannot be started: {0}")]
    NotStarted(String),
    /// The program has no voice of this name.
    #[error("`{PROGRAM}` has no voice `{0}`; `{PROGRAM} --voices` lists them")]
    NoVoice(String),
    /// The program failed while it converted a text.
    #[error("`{PROGRAM}` failed while it made phonemes of \"{words}\": {reason}")]
    Failed {
        /// What it was to read.
        words: String,
        /// What happened.
        reason: String,
    },
}

impl Phonemizer {
    /// Makes a phonemizer with a voice of `espeak-ng`, such as `en-us` or `de`. It does not start the program.
    pub fn new(voice: impl Into<String>) -> Self {
        Self { voice: voice.into(), shared: Arc::default() }
    }

    /// Returns the name of the voice.
    pub fn voice(&self) -> &str {
        &self.voice
    }

    /// Checks that the program is there and has the voice.
    ///
    /// # Errors
    /// When it is not, or has not.
    pub fn check(&self) -> Result<(), PhonemeError> {
        self.apply("a").map(drop)
    }

    /// Converts a text to phonemes. Threads do so at the same time, each with a process of its own.
    ///
    /// # Errors
    /// When the program cannot be started, does not have the voice, or fails.
    pub fn apply(&self, text: &str) -> Result<String, PhonemeError> {
        let mut phonemes = String::new();
        for run in runs(text) {
            match run {
                Run::Mark(mark) => phonemes.push(mark),
                Run::Words(words) => {
                    let read = self.read(words)?;
                    if !(phonemes.is_empty() || read.is_empty()) {
                        phonemes.push(' ');
                    }
                    phonemes.push_str(&read);
                }
            }
        }
        Ok(phonemes)
    }

    /// Returns the phonemes of words without marks between them.
    fn read(&self, words: &str) -> Result<String, PhonemeError> {
        let idle = {
            let mut shared = self.shared();
            if let Some(known) = shared.known.get(words) {
                return Ok(known.clone());
            }
            shared.idle.pop()
        };
        let (process, read) = match idle.and_then(|process| process.read(words).ok()) {
            Some(read) => read,
            // None is idle, or the one that was has ended.
            None => Process::start(PROGRAM, &self.voice)?.read(words)?,
        };
        let mut shared = self.shared();
        if shared.known.len() < KEPT_RUNS {
            shared.known.insert(words.into(), read.clone());
        }
        if shared.idle.len() < IDLE_PROCESSES {
            shared.idle.extend(process);
        }
        Ok(read)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Phonemizer {
    fn eq(&self, other: &Self) -> bool {
        self.voice == other.voice
    }
}

impl fmt::Debug for Phonemizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Phonemizer").field("voice", &self.voice).finish_non_exhaustive()
    }
}

/// Serialized form of a phonemizer, as a model remembers it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedPhonemizer {
    espeak_voice: String,
}

impl From<SavedPhonemizer> for Phonemizer {
    fn from(saved: SavedPhonemizer) -> Self {
        Self::new(saved.espeak_voice)
    }
}

impl From<Phonemizer> for SavedPhonemizer {
    fn from(phonemizer: Phonemizer) -> Self {
        Self { espeak_voice: phonemizer.voice }
    }
}
