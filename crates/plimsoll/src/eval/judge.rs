//! The judge of made speech: a recognizer or a Whisper model that transcribes it.

use std::path::Path;

use burn::tensor::Device;
use plimsoll_audio::resample;
use plimsoll_recipes::Failure;
use plimsoll_recipes::language::LanguageSettings;
use plimsoll_recipes::listener::{self, Listener, Listening};
use plimsoll_speech::asr::{Search, Transcription};
use plimsoll_text::{Case, Numbers, normalize, without_punctuation};

use crate::terminal::Terminal;

/// A model that judges speech by what it understands.
pub(super) struct Judge {
    listener: Listener,
    /// How it writes numbers.
    numbers: Numbers,
}

impl Judge {
    /// Loads the model in `folder`: a run, an exported model, or a Whisper model of Hugging Face. Prints a warning if its weights may
    /// not be the best. `language` is that of the speech, if it is known, as a code such as `de` or `en-us`.
    pub(super) fn load(folder: &Path, language: Option<&str>, device: &Device) -> Result<Self, Failure> {
        let tokenizer = listener::tokenizer(folder)?;
        let spoken = language.and_then(|language| language.split(['-', '_']).next());
        let named = spoken.filter(|language| tokenizer.has_whisper_language(language)).map(str::to_owned);
        // Whisper writes `9` for what a text calls `nine`. The models for English alone have no languages.
        let is_english = named.as_deref().or(spoken).is_none_or(|language| language == "en");
        let how = Listening { search: Search::Greedy, words: LanguageSettings::none(), language: named };
        let listener = Listener::load(folder, &how, device, &Terminal)?;
        let writes_digits = matches!(listener, Listener::Whisper(..)) && is_english;
        let numbers = if writes_digits { Numbers::English } else { Numbers::AsWritten };
        Ok(Self { listener, numbers })
    }

    /// Returns the reasons why the judge may not be the best that it can be.
    pub(super) fn warnings(&self) -> &[String] {
        self.listener.warnings()
    }

    /// Transcribes `samples` at `rate`, which should say `text`. Case and punctuation cannot be heard, so they are left out on both sides.
    pub(super) fn transcription(&self, name: String, text: &str, samples: Vec<f32>, rate: u32) -> Transcription {
        let heard = self.listener.text(&resample(samples, rate, self.listener.sample_rate()), &Terminal);
        let words = |text: &str| normalize(&without_punctuation(&self.numbers.apply(text)), Case::Lower);
        Transcription { name, reference: words(text), hypothesis: words(&heard) }
    }
}
