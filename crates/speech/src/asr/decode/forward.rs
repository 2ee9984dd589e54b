//! CTC probabilities of prefixes that grow: the forward variables of Watanabe et al. 2017, algorithm 2.

use super::{BLANK, CtcScores, log_add};

/// CTC forward variables of a prefix: log-probabilities that the first 0, 1, 2, ... frames collapse to exactly this
/// prefix.
pub(super) struct PrefixForward {
    /// Last token of the prefix; the blank for the empty prefix, as no text token equals the blank.
    last: u32,
    /// Log-probabilities over the paths that end in a blank; one value for each number of frames.
    blank: Vec<f64>,
    /// Log-probabilities over all paths; one value for each number of frames.
    either: Vec<f64>,
}

impl PrefixForward {
    /// Computes the forward variables of the empty prefix, whose paths hold only blanks.
    pub(super) fn empty(scores: &CtcScores) -> Self {
        let mut blank = vec![0.0];
        for t in 0..scores.frames() {
            blank.push(blank[t] + scores.at(t, BLANK));
        }
        Self { last: BLANK, either: blank.clone(), blank }
    }

    /// Computes the log-probability that the prefix is the whole text.
    pub(super) fn complete(&self) -> f64 {
        *self.either.last().expect("there is a value for zero frames")
    }

    /// Computes the log-probability that the text begins with the prefix and then `token`.
    ///
    /// The result is a sum over the frame in which `token` starts, so it needs no forward variables of the longer
    /// prefix. Forward variables are computed only for the hypotheses that stay in the beam.
    pub(super) fn with_token(&self, token: u32, scores: &CtcScores) -> f64 {
        let before = self.extendable_by(token);
        let terms: Vec<f64> = (0..scores.frames()).map(|t| before[t] + scores.at(t, token)).collect();
        let highest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if highest == f64::NEG_INFINITY {
            return highest;
        }
        highest + terms.iter().map(|term| (term - highest).exp()).sum::<f64>().ln()
    }

    /// Computes the forward variables of the prefix extended by `token`.
    pub(super) fn extend(&self, token: u32, scores: &CtcScores) -> Self {
        let before = self.extendable_by(token);
        let mut in_token = f64::NEG_INFINITY;
        let (mut blank, mut either) = (vec![f64::NEG_INFINITY], vec![f64::NEG_INFINITY]);
        for t in 0..scores.frames() {
            in_token = log_add(in_token, before[t]) + scores.at(t, token);
            blank.push(either[t] + scores.at(t, BLANK));
            either.push(log_add(in_token, blank[t + 1]));
        }
        Self { last: token, blank, either }
    }

    /// Returns, for each number of frames, the log-probability of the paths to this prefix after which `token` starts a
    /// new token of the text. If `token` equals the last token of the prefix, these are only the paths that end in a
    /// blank: without a blank, CTC collapses the two equal tokens to one.
    fn extendable_by(&self, token: u32) -> &[f64] {
        if token == self.last { &self.blank } else { &self.either }
    }
}
