//! Options of the searches that use an attention decoder, and the score that they rank by.

use std::num::NonZeroUsize;

/// Options of the attention beam, the joint beam and rescoring.
///
/// The score of a text of `n` tokens is `ctc_weight * ctc + (1 - ctc_weight) * attention + length_bonus * n`, divided
/// by `n + 1` when `normalize_length` is set. `attention` is the sum of the decoder's log-probabilities, including the
/// end token's. `ctc` is the log-probability of the whole text; the attention beam has none.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamOptions {
    /// Beam width: number of hypotheses kept at each step, and maximum number of texts returned. Rescoring ignores it
    /// and returns all texts.
    pub width: NonZeroUsize,
    /// Maximum number of tokens of a text; a hypothesis of this length can only end. Rescoring ignores it.
    pub length_max: usize,
    /// Weight of CTC in the score, from 0 to 1; the attention decoder has the rest. The attention beam ignores it.
    pub ctc_weight: f64,
    /// Bonus added to the score for each token except the end token. Sums of log-probabilities favor short texts; a
    /// positive bonus corrects that.
    pub length_bonus: f64,
    /// Whether the score of a finished text is divided by its number of tokens, including the end token.
    pub normalize_length: bool,
    /// Start token of the decoder.
    pub sos: u32,
    /// End token of the decoder; it may equal the start token.
    pub eos: u32,
}

impl BeamOptions {
    /// Makes options with their defaults: a width of 10 and a CTC weight of 0.3 (between the defaults of ESPnet and
    /// SpeechBrain), no bonus, no normalization.
    ///
    /// The two tokens and the limit depend on the model and have no default. For a model with CTC, the number of
    /// encoder frames is a safe limit: CTC cannot emit more tokens than frames.
    pub fn new(sos: u32, eos: u32, length_max: usize) -> Self {
        let width = NonZeroUsize::new(10).expect("10 is not zero");
        Self { width, length_max, ctc_weight: 0.3, length_bonus: 0.0, normalize_length: false, sos, eos }
    }

    /// Computes the score of a text of `tokens` tokens: adds the length bonus to `weighted`, which is its
    /// log-probability by CTC and attention together, and divides by the length if the options ask for it.
    pub(super) fn score(&self, weighted: f64, tokens: usize) -> f64 {
        let raw = weighted + self.length_bonus * tokens as f64;
        if self.normalize_length { raw / (tokens + 1) as f64 } else { raw }
    }

    /// Computes the highest score that a hypothesis of `tokens` tokens can still reach with at most `limit` tokens.
    ///
    /// The weighted log-probability `s` of the hypothesis can only fall: every attention probability is at most one,
    /// and CTC never gives a longer prefix, or an end, more than the prefix itself. For a fixed `s` the score as a
    /// function of the length `n` is `s + b n` or `(s + b n) / (n + 1)`. Each of these functions is monotonic, so the
    /// maximum is at the shortest or the longest length.
    pub(super) fn bound(&self, weighted: f64, tokens: usize, limit: usize) -> f64 {
        self.score(weighted, tokens).max(self.score(weighted, limit))
    }

    /// Checks the ranges of the options.
    ///
    /// # Panics
    /// When the CTC weight is not from 0 to 1, or the bonus is not finite.
    pub(super) fn check(&self) {
        assert!((0.0..=1.0).contains(&self.ctc_weight), "the CTC weight is {}, not from 0 to 1", self.ctc_weight);
        assert!(self.length_bonus.is_finite(), "the length bonus is {}, not a finite number", self.length_bonus);
    }
}

/// Computes the weighted sum of a text's log-probabilities by CTC and by the attention decoder. A log-probability with
/// weight 0 does not count, even if it is minus infinity.
pub(super) fn blend(ctc_weight: f64, ctc: f64, attention: f64) -> f64 {
    let share = |weight: f64, value: f64| if weight == 0.0 { 0.0 } else { weight * value };
    share(ctc_weight, ctc) + share(1.0 - ctc_weight, attention)
}
