//! The texts that a beam search has ended, and whether it may stop.

use super::{BeamOptions, Hypothesis, best_first};

/// Log-probability by which an ended text has to trail the best one to count as hopeless (ESPnet's `D_end`).
const HOPELESS: f64 = -10.0;
/// Lengths in a row whose ended texts are all hopeless before the search stops (ESPnet's `M`).
const HOPELESS_LENGTHS: usize = 3;

/// Texts that have ended, and what they say about those that have not.
pub(super) struct Finished<'a> {
    options: &'a BeamOptions,
    hypotheses: Vec<Hypothesis>,
    /// The highest score before any division by the length.
    best_sum: f64,
    hopeless_lengths: usize,
}

impl<'a> Finished<'a> {
    pub(super) fn new(options: &'a BeamOptions) -> Self {
        Self { options, hypotheses: Vec::new(), best_sum: f64::NEG_INFINITY, hopeless_lengths: 0 }
    }

    /// Takes the texts that ended with one number of tokens, each with its weighted log-probability.
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

    /// Whether the search is over, where `bound` is the highest score that a running hypothesis can still reach.
    ///
    /// The bound is exact, and alone decides without a bonus or normalisation. With either of them it is loose, and a
    /// search would run on to its limit to no end, so ESPnet's rule stops it too (Watanabe et al. 2017, equation 50).
    pub(super) fn is_settled(&self, bound: f64) -> bool {
        let best = self.hypotheses.iter().map(|hypothesis| hypothesis.score).fold(f64::NEG_INFINITY, f64::max);
        bound <= best || self.hopeless_lengths >= HOPELESS_LENGTHS
    }

    pub(super) fn into_best(self) -> Vec<Hypothesis> {
        best_first(self.hypotheses, self.options.width.get())
    }
}
