//! Search with a language model, hotwords and a lexicon.

use plimsoll_language::{
    FusionOptions, FusionState, Hotwords, LanguageScorer, Lexicon, NgramModel, fused_beam, fused_beam_part,
};
use plimsoll_text::Tokenizer;

use super::decode::CtcScores;

/// Search of the best text by CTC together with a language model, hotwords, a lexicon, or several of them.
///
/// The rules are those of `pyctcdecode`; see [`fused_beam`].
#[derive(Clone, Debug)]
pub struct LanguageSearch {
    scorer: LanguageScorer,
    options: FusionOptions,
}

impl LanguageSearch {
    /// Makes a search over the tokens of `tokenizer` that adds nothing to CTC yet.
    ///
    /// # Panics
    /// When a number of the options is not finite or has the wrong sign.
    pub fn new(tokenizer: &Tokenizer, options: FusionOptions) -> Self {
        Self { scorer: LanguageScorer::new(&tokenizer.token_texts(), &options), options }
    }

    /// Adds a language model, of words or of characters.
    #[must_use]
    pub fn with_model(self, model: NgramModel) -> Self {
        Self { scorer: self.scorer.with_model(model), ..self }
    }

    /// Adds a model of characters with a weight of its own, beside a model of words.
    ///
    /// # Panics
    /// When the model is one of words, or the weight is not finite.
    #[must_use]
    pub fn with_spelling(self, model: NgramModel, weight: f64) -> Self {
        Self { scorer: self.scorer.with_spelling(model, weight), ..self }
    }

    /// Adds words that are easier to find.
    #[must_use]
    pub fn with_hotwords(self, hotwords: Hotwords) -> Self {
        Self { scorer: self.scorer.with_hotwords(hotwords), ..self }
    }

    /// Allows only texts of the words of `lexicon`.
    #[must_use]
    pub fn with_lexicon(self, lexicon: Lexicon) -> Self {
        Self { scorer: self.scorer.with_lexicon(lexicon), ..self }
    }

    /// Returns the scores of texts.
    pub(super) fn scorer(&self) -> &LanguageScorer {
        &self.scorer
    }

    /// Searches the tokens of the best continuation of a text that has the state `start` and goes on after `scores`.
    pub(super) fn best_part(&self, scores: &CtcScores, start: &FusionState) -> Vec<u32> {
        let best = fused_beam_part(scores.log_probs(), &self.scorer, &self.options, start).into_iter().next();
        best.map(|best| best.tokens).unwrap_or_default()
    }

    /// Searches the tokens of the best text of `scores`.
    pub fn best(&self, scores: &CtcScores) -> Vec<u32> {
        let best = fused_beam(scores.log_probs(), &self.scorer, &self.options).into_iter().next();
        best.map(|best| best.tokens).unwrap_or_default()
    }
}
