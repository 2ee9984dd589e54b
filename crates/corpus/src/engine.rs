//! The trait of speech engines, and the formant synthesizer as an engine.

use crate::error::CorpusError;
use crate::lexicon::Lexicon;
use crate::synthesizer::synthesize;
use crate::voice::Voice;
use plimsoll_core::Key;

/// A speech engine with many voices: the formant synthesizer or espeak-ng.
pub(super) trait SpeechEngine: Sync {
    /// The words that it can speak.
    fn words(&self) -> Vec<&'static str>;

    /// Speech without room and noise, at [`SAMPLE_RATE`](crate::SAMPLE_RATE), of the `words` with these indices, in
    /// the voice of `speaker`.
    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError>;
}

/// The built-in formant synthesizer.
pub(super) struct FormantEngine {
    /// Seed of the corpus, which decides the voices.
    pub(super) seed: u64,
    /// Whether its voices read aloud instead of speaking freely.
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
