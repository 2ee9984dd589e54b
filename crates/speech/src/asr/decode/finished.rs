//! The finished texts of a beam search, and the rule by which it stops.

use super::{BeamOptions, Hypothesis, best_first};

/// A finished text counts as hopeless when its score (natural log) minus the best score of a finished text is below
/// this value (ESPnet's `D_end`).
const HOPELESS: f64 = -10.0;
/// A search with a language stops when the best running text lies this far (natural log) below the best finished text. The
/// score of a running text can rise: when an unknown beginning becomes a known word, and by a bonus for each word. Beyond
/// the end of what is said each token costs more than that.
const FUSED_MARGIN: f64 = 25.0;
/// The search stops when the finished texts of this many consecutive lengths are all hopeless (ESPnet's `M`).
const HOPELESS_LENGTHS: usize = 3;

/// Finished texts of a beam search, from which the search takes its result and decides when to stop.
pub(super) struct Finished<'a> {
    options: &'a BeamOptions,
    hypotheses: Vec<Hypothesis>,
    /// Highest score of a finished text before the division by the length.
    best_sum: f64,
    hopeless_lengths: usize,
}

impl<'a> Finished<'a> {
    pub(super) fn new(options: &'a BeamOptions) -> Self {
        Self { options, hypotheses: Vec::new(), best_sum: f64::NEG_INFINITY, hopeless_lengths: 0 }
    }

    /// Adds the finished texts of one length: the tokens of each text, and its log-probability by CTC and decoder,
    /// weighted. Call it once for each length, in rising order, because it also counts the consecutive lengths whose
    /// texts are hopeless.
    pub(super) fn take(&mut self, texts: Vec<(Vec<u32>, f64)>) {
        let sum = |(tokens, weighted): &(Vec<u32>, f64)| weighted + self.options.length_bonus * tokens.len() as f64;
        let best_of_length = texts.iter().map(sum).reduce(f64::max);
        self.best_sum = best_of_length.map_or(self.best_sum, |best| best.max(self.best_sum));
        let is_hopeless = best_of_length.is_some_and(|best| best - self.best_sum < HOPELESS);
        self.hopeless_lengths = if is_hopeless { self.hopeless_lengths + 1 } else { 0 };
        for (tokens, weighted) in texts {
            self.hypotheses.push(Hypothesis { score: self.options.score(weighted, tokens.len()), tokens });
        }
    }

    /// Returns whether the search can stop. `bound` is the highest score that a running hypothesis can still reach.
    ///
    /// Without bonus and normalization the bound is exact, and alone decides. With a bonus or normalization the bound
    /// is loose, and the search would always run to its limit; then ESPnet's rule stops it as well (Watanabe et al.
    /// 2017, equation 50).
    pub(super) fn is_settled(&self, bound: f64) -> bool {
        let best = self.hypotheses.iter().map(|hypothesis| hypothesis.score).fold(f64::NEG_INFINITY, f64::max);
        bound <= best || self.hopeless_lengths >= HOPELESS_LENGTHS
    }

    /// Returns whether the best finished text lies so far above a running text with the score `sum`, before the division by
    /// the length, that no word bonus makes up for it.
    pub(super) fn is_far_above(&self, sum: f64) -> bool {
        self.best_sum - sum > FUSED_MARGIN
    }

    pub(super) fn into_best(self) -> Vec<Hypothesis> {
        best_first(self.hypotheses, self.options.width.get())
    }
}
