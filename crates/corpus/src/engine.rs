//! Trait of speech engines, and its implementation for the formant synthesizer.

use crate::error::CorpusError;
use crate::lexicon::Lexicon;
use crate::synthesizer::synthesize;
use crate::voice::Voice;
use plimsoll_core::Key;

/// Speech engine with many voices: the formant synthesizer or espeak-ng.
pub(super) trait SpeechEngine: Sync {
    /// Returns the words that the engine can speak.
    fn words(&self) -> Vec<&'static str>;

    /// Synthesizes a sentence in the voice of `speaker`, without room and noise, at
    /// [`SAMPLE_RATE`](crate::SAMPLE_RATE). `words` are indices into the list that `words()` returns; `key` determines
    /// the random choices.
    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError>;
}

/// Speech engine of the built-in formant synthesizer.
pub(super) struct FormantEngine {
    /// Seed of the corpus, which determines the voices.
    pub(super) seed: u64,
    /// Whether the voices read aloud instead of speaking freely.
    pub(super) is_reading: bool,
}

impl SpeechEngine for FormantEngine {
    fn words(&self) -> Vec<&'static str> {
        Lexicon::english().words().iter().map(|word| word.spelling).collect()
    }

    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError> {
        let voice = Voice::new(self.seed, speaker);
        let voice = if self.is_reading { voice.reading() } else { voice };
        Ok(synthesize(words, &voice, key).samples)
    }
}
