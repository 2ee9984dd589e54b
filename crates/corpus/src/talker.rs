//! The seam between the corpus and whatever speaks in it.

use super::CorpusError;
use super::lexicon::Lexicon;
use super::synthesiser::synthesise;
use super::voice::Voice;
use plimsoll_core::Key;

/// A way to say sentences in many voices: the formant synthesiser or espeak-ng.
pub(super) trait Talker: Sync {
    /// The words it can say.
    fn words(&self) -> Vec<&'static str>;

    /// Dry speech at [`SAMPLE_RATE`](super::SAMPLE_RATE) of these places in `words`, in the voice numbered `speaker`.
    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError>;
}

/// The built-in synthesiser.
pub(super) struct FormantTalker {
    /// The seed of the corpus, which decides the voices.
    pub(super) seed: u64,
    /// Whether its voices read aloud, and do not talk freely.
    pub(super) reads: bool,
}

impl Talker for FormantTalker {
    fn words(&self) -> Vec<&'static str> {
        Lexicon::english().words().iter().map(|word| word.spelling).collect()
    }

    fn say(&self, words: &[usize], speaker: usize, key: Key) -> Result<Vec<f32>, CorpusError> {
        let voice = Voice::of(self.seed, speaker);
        let voice = if self.reads { voice.reading() } else { voice };
        Ok(synthesise(words, &voice, key).samples)
    }
}
