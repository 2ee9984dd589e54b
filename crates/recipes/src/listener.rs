//! A trained model of any family that turns sound into text, on a device.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::{LongTranscriber, Search};
use plimsoll_speech::whisper::{LongWhisper, WhisperTranscriber};
use plimsoll_text::Tokenizer;
use plimsoll_text::transcript::Segment;

use crate::error::{Failure, FailureExt};
use crate::families::family_of;
use crate::language::LanguageSettings;
use crate::reader::Reader;
use crate::reporter::{Level, Reporter};

/// A model that turns samples into text, with its search.
pub enum Listener {
    /// A recognizer with CTC.
    Recognizer(Box<Reader>),
    /// A Whisper model.
    Whisper(Box<WhisperTranscriber>, Search),
}

/// How a [`Listener`] searches the text of a recording.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Search, unless there is a language model.
    pub search: Search,
    /// Language models, hotwords and lexicon.
    pub words: LanguageSettings,
    /// Language of the recordings, as a code; only of a Whisper model for many languages.
    pub language: Option<String>,
}

impl Listener {
    /// Loads the model in `folder`, which is the folder of a run, of an exported model, or of Hugging Face, onto `device`. Reports a
    /// warning if the weights may not be the best of the run.
    ///
    /// # Errors
    /// If the folder holds no model that turns sound into text, or it does not support what `how` asks for.
    pub fn load(folder: &Path, how: &Listening, device: &Device, reporter: &dyn Reporter) -> Result<Self, Failure> {
        let Listening { search, words, language } = how;
        if !is_whisper(folder)? {
            if let Some(language) = language {
                let message = format!("{} knows one language, and `--language` is `{language}`", folder.display());
                return Err(Failure::invalid(message, "leave out --language"));
            }
            let reader = Reader::load(folder, *search, device, reporter)?;
            return Ok(Self::Recognizer(Box::new(reader.with_language(words)?)));
        }
        if words.has_words() {
            let message = "a language model, hotwords and a lexicon work with CTC, which Whisper does not have";
            return Err(Failure::invalid(message, "leave out --lm, --spelling, --hotwords and --lexicon"));
        }
        if !matches!(search, Search::Greedy | Search::Attention { .. }) {
            let message = format!("the model in {} has no CTC", folder.display());
            return Err(Failure::invalid(message, "use `--search greedy` or `--search attention`"));
        }
        let transcriber = WhisperTranscriber::load(folder, language.as_deref(), device).invalid()?;
        transcriber.warnings().iter().for_each(|text| reporter.line(Level::Warning, text));
        Ok(Self::Whisper(Box::new(transcriber), *search))
    }

    /// Returns the recognizer with CTC.
    ///
    /// # Errors
    /// If the model is another one, which cannot do `what`.
    pub fn with_ctc(self, what: &str) -> Result<Reader, Failure> {
        match self {
            Self::Recognizer(reader) => Ok(*reader),
            Self::Whisper(..) => {
                let message = format!("a Whisper model hears whole windows, and cannot {what}");
                Err(Failure::invalid(message, "use a recognizer that was trained here"))
            }
        }
    }

    /// Returns the sample rate in Hz that [`text`](Self::text) expects.
    pub fn sample_rate(&self) -> u32 {
        match self {
            Self::Recognizer(reader) => reader.sample_rate(),
            Self::Whisper(transcriber, _) => transcriber.sample_rate(),
        }
    }

    /// Returns the search.
    pub fn search(&self) -> Search {
        match self {
            Self::Recognizer(reader) => reader.search,
            Self::Whisper(_, search) => *search,
        }
    }

    /// Returns the reasons why the loaded weights may not be the best of the run; empty if they are.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Recognizer(reader) => reader.transcriber().warnings(),
            Self::Whisper(transcriber, _) => transcriber.warnings(),
        }
    }

    /// Transcribes mono `samples`. Reports a warning if the model's length policy cuts the end of so long a recording.
    pub fn text(&self, samples: &[f32], reporter: &dyn Reporter) -> String {
        match self {
            Self::Recognizer(reader) => reader.text(samples, reporter),
            Self::Whisper(transcriber, search) => transcriber.transcribe(samples, search),
        }
    }

    /// Begins a recording of any length, which is transcribed in parts. A recognizer with CTC always knows the times of words; a Whisper
    /// model says those of its segments if `with_times` asks for them.
    pub fn long(&self, with_times: bool) -> LongListener<'_> {
        match self {
            Self::Recognizer(reader) => LongListener::Recognizer(Box::new(reader.long())),
            Self::Whisper(transcriber, search) => {
                let long = LongWhisper::new(transcriber, *search);
                LongListener::Whisper(if with_times { long.with_times() } else { long })
            }
        }
    }
}

/// A recording of any length that is transcribed in parts.
pub enum LongListener<'a> {
    /// By a recognizer with CTC.
    Recognizer(Box<LongTranscriber<'a>>),
    /// By a Whisper model.
    Whisper(LongWhisper<'a>),
}

impl LongListener<'_> {
    /// Takes samples, and returns the segments that are finished. Segments without text are left out.
    pub fn push(&mut self, samples: &[f32]) -> Vec<Segment> {
        match self {
            Self::Recognizer(long) => long.push(samples),
            Self::Whisper(long) => long.push(samples),
        }
    }

    /// Ends the recording, and returns the last segments.
    pub fn finish(self) -> Vec<Segment> {
        match self {
            Self::Recognizer(long) => long.finish(),
            Self::Whisper(mut long) => long.finish(),
        }
    }
}

/// Reads the tokenizer of the model in `folder`, which turns sound into text.
///
/// # Errors
/// If there is no such model.
pub fn tokenizer(folder: &Path) -> Result<Tokenizer, Failure> {
    let facts = family_of(ModelFolder(folder))?.facts(folder)?;
    facts.tokenizer.ok_or_else(|| Failure::invalid(format!("{} reads no text", folder.display()), "name a recognizer"))
}

fn is_whisper(folder: &Path) -> Result<bool, Failure> {
    use plimsoll_speech::ModelKind;
    Ok(ModelFolder(folder).kind().invalid()? == plimsoll_speech::whisper::WhisperConfig::KIND)
}
