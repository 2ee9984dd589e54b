//! Options of a search with fusion.

use std::num::NonZeroUsize;

/// Options of a search with fusion.
///
/// The score of a text is its log-probability by CTC, plus `alpha` times its log-probability by the language model
/// (both natural), plus `beta` for each word, plus the weights of its hotwords.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FusionOptions {
    /// Weight of the language model.
    pub alpha: f64,
    /// Bonus for each word, when there is a model. Every word costs log-probability by the model; a bonus corrects the
    /// preference for few words.
    pub beta: f64,
    /// What an unknown word costs beside its probability, as a logarithm to base 10 that is subtracted and then weighted
    /// by `alpha`. The same number, as it is, is subtracted from a hypothesis while no known word begins as its last
    /// word; above 6 characters it grows with their number.
    pub unknown_penalty: f64,
    /// Largest number of hypotheses that are kept after each frame.
    pub width: NonZeroUsize,
    /// In each frame, tokens below this log-probability are ignored, except for the likeliest token.
    pub token_log_prob_min: f32,
    /// After each frame, hypotheses whose score lies this far below the best are dropped.
    pub beam_margin: f64,
    /// Largest number of texts that are returned.
    pub n_best: NonZeroUsize,
}

impl Default for FusionOptions {
    /// The defaults of `pyctcdecode`: a weight of 0.5, a bonus of 1.5, a penalty of 10, a width of 100, tokens from -5 and
    /// hypotheses within 10. One text is returned.
    fn default() -> Self {
        let width = NonZeroUsize::new(100).expect("100 is not zero");
        Self {
            alpha: 0.5,
            beta: 1.5,
            unknown_penalty: 10.0,
            width,
            token_log_prob_min: -5.0,
            beam_margin: 10.0,
            n_best: NonZeroUsize::MIN,
        }
    }
}

impl FusionOptions {
    /// Sets the weight of the language model and the bonus of a word.
    pub fn with_weights(mut self, alpha: f64, beta: f64) -> Self {
        (self.alpha, self.beta) = (alpha, beta);
        self
    }

    /// Sets the largest number of hypotheses that are kept after each frame.
    pub fn with_width(mut self, width: NonZeroUsize) -> Self {
        self.width = width;
        self
    }

    /// Sets the largest number of texts that are returned.
    pub fn with_n_best(mut self, n_best: NonZeroUsize) -> Self {
        self.n_best = n_best;
        self
    }

    /// Keeps every token and every hypothesis that fits the width.
    pub fn without_pruning(mut self) -> Self {
        self.token_log_prob_min = f32::NEG_INFINITY;
        self.beam_margin = f64::INFINITY;
        self
    }

    /// Checks the ranges of the options.
    ///
    /// # Panics
    /// When a weight, the bonus or the penalty is not finite, or a limit is NaN or has the wrong sign.
    pub(super) fn check(&self) {
        let numbers = [self.alpha, self.beta, self.unknown_penalty];
        assert!(numbers.iter().all(|number| number.is_finite()), "the weights of the fusion are {numbers:?}");
        assert!(self.token_log_prob_min <= 0.0, "the least log-probability is {}", self.token_log_prob_min);
        assert!(self.beam_margin >= 0.0, "the margin of the beam is {}", self.beam_margin);
    }
}
