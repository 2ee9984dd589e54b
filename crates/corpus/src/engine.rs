//! Trait of speech engines, and its implementation for the formant synthesizer.

use crate::error::CorpusError;
use crate::lexicon::Lexicon;
use crate::synthesizer::{n_samples, synthesize, word_samples};
use crate::voice::Voice;
use plimsoll_core::Key;
use std::ops::Range;

/// Speech engine with many voices: the formant synthesizer or espeak-ng.
pub(super) trait SpeechEngine: Sync {
    /// Returns the words that the engine can speak.
    fn words(&self) -> Vec<&'static str>;

    /// Synthesizes a sentence in the voice of `speaker`, without room and noise, at
    /// [`SAMPLE_RATE`](crate::SAMPLE_RATE). `words` are indices into the list that `words()` returns; `key` determines
    /// the random choices.
    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError>;

    /// Computes the number of samples that [`say`](Self::say) returns for the same arguments. The default says the
    /// sentence and counts.
    fn n_samples(&self, words: &[usize], speaker: usize, key: Key) -> Result<usize, CorpusError> {
        Ok(self.say(words, speaker, key)?.len())
    }

    /// Computes the samples of each word in what [`say`](Self::say) returns for the same arguments. The default does not know
    /// them.
    fn word_samples(&self, _words: &[usize], _speaker: usize, _key: Key) -> Result<Vec<Range<usize>>, CorpusError> {
        Err(CorpusError::NoTimes)
    }
}

/// Speech engine of the built-in formant synthesizer.
pub(super) struct FormantEngine {
    /// Seed of the corpus, which determines the voices.
    pub(super) seed: u64,
    /// Whether the voices read aloud instead of speaking freely.
    pub(super) is_reading: bool,
}

impl FormantEngine {
    fn voice(&self, speaker: usize) -> Voice {
        let voice = Voice::new(self.seed, speaker);
        if self.is_reading { voice.reading() } else { voice }
    }
}

impl SpeechEngine for FormantEngine {
    fn words(&self) -> Vec<&'static str> {
        Lexicon::english().words().iter().map(|word| word.spelling).collect()
    }

    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError> {
        Ok(synthesize(words, &self.voice(speaker), key).samples)
    }

    fn n_samples(&self, words: &[usize], speaker: usize, key: Key) -> Result<usize, CorpusError> {
        Ok(n_samples(words, &self.voice(speaker), key))
    }

    fn word_samples(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<Range<usize>>, CorpusError> {
        Ok(word_samples(words, &self.voice(speaker), key))
    }
}
