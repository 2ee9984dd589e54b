//! How hypotheses are searched for and ranked where the attention decoder has a say.

use std::num::NonZeroUsize;

/// Options of the attention beam, the joint beam and rescoring.
///
/// All three rank a text of `n` tokens by `ctc_weight * ctc + (1 - ctc_weight) * attention + length_bonus * n`,
/// divided by `n + 1` where `normalize_length` is set. `attention` is the sum of the decoder's log-probabilities, the
/// closing token's included; `ctc` is the log-probability of the whole text, and the attention beam has none.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamOptions {
    /// Hypotheses that go on at each step, and texts returned at most; rescoring returns all it is given.
    pub width: NonZeroUsize,
    /// Tokens of the longest text; a hypothesis that has as many can only end. Rescoring does not look at it.
    pub length_max: usize,
    /// The share of CTC, from 0 to 1; the attention decoder has the rest. The attention beam does not look at it.
    pub ctc_weight: f64,
    /// Added for each token, the closing one not counted: sums of log-probabilities favour short texts.
    pub length_bonus: f64,
    /// Whether scores are divided by the number of tokens, the closing one counted, once a text has ended.
    pub normalize_length: bool,
    /// The token that opens a text.
    pub sos: u32,
    /// The token that closes a text; it may be the one that opens it.
    pub eos: u32,
}

impl BeamOptions {
    /// A width of 10 and a CTC weight of 0.3, ESPnet's and SpeechBrain's middle ground; no bonus, no normalisation.
    ///
    /// The two tokens and the limit depend on the model, so they have no default. The encoder's frames are a limit
    /// that cannot be wrong where CTC is trained beside the decoder.
    pub fn new(sos: u32, eos: u32, length_max: usize) -> Self {
        let width = NonZeroUsize::new(10).expect("10 is not zero");
        Self { width, length_max, ctc_weight: 0.3, length_bonus: 0.0, normalize_length: false, sos, eos }
    }

    /// The score of a text of `tokens` tokens, from its weighted log-probability.
    pub(super) fn score(&self, weighted: f64, tokens: usize) -> f64 {
        let raw = weighted + self.length_bonus * tokens as f64;
        if self.normalize_length { raw / (tokens + 1) as f64 } else { raw }
    }

    /// The highest score that a hypothesis of `tokens` tokens can still reach with at most `limit`.
    ///
    /// Its weighted log-probability only falls: every factor of attention is at most one, and a longer prefix is never
    /// likelier in CTC than its beginning, nor is ending there. At that value the score as a function of length is
    /// `s + b n` or `(s + b n) / (n + 1)`. Both go one way all along, so one of the two ends is highest.
    pub(super) fn bound(&self, weighted: f64, tokens: usize, limit: usize) -> f64 {
        self.score(weighted, tokens).max(self.score(weighted, limit))
    }

    /// # Panics
    /// Where a number is out of its range.
    pub(super) fn check(&self) {
        assert!((0.0..=1.0).contains(&self.ctc_weight), "the ctc weight is {}, not from 0 to 1", self.ctc_weight);
        assert!(self.length_bonus.is_finite(), "the length bonus is {}", self.length_bonus);
    }
}

/// The weighted log-probability of a text. A weight of zero means that minus infinity does not count either.
pub(super) fn blend(ctc_weight: f64, ctc: f64, attention: f64) -> f64 {
    let share = |weight: f64, value: f64| if weight == 0.0 { 0.0 } else { weight * value };
    share(ctc_weight, ctc) + share(1.0 - ctc_weight, attention)
}
