//! Chain of CTC's states for one text: a blank before, between and after its tokens.

use super::input::LogProbs;

/// Smallest log-probability. Negative infinity becomes this, so that every text has a best path.
const LEAST: f64 = -1e6;

/// States of a text. State `2n` is the blank before token `n`; state `2n + 1` is token `n`.
pub(super) struct Chain<'a> {
    log_probs: LogProbs<'a>,
    text: &'a [u32],
    /// Whether each blank is a gap, which also accepts other sounds. Empty if none is.
    gaps: Vec<bool>,
    /// Score of a gap in each frame. Empty if no blank is a gap.
    gap_scores: Vec<f64>,
}

impl<'a> Chain<'a> {
    /// Creates the chain of a text that was checked.
    pub(super) fn new(log_probs: LogProbs<'a>, text: &'a [u32]) -> Self {
        Self { log_probs, text, gaps: Vec::new(), gap_scores: Vec::new() }
    }

    /// Makes gaps of some blanks: one value for each token, and one for the end. In each frame a gap scores as the blank
    /// or as the best token less `penalty`, whichever is more.
    pub(super) fn with_gaps(self, gaps: Vec<bool>, penalty: f32) -> Self {
        let score = |frame| {
            let values = self.log_probs.frame(frame);
            let best = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            f64::from((best - penalty).max(values[0])).max(LEAST)
        };
        let gap_scores = (0..self.log_probs.frames()).map(score).collect();
        Self { gaps, gap_scores, ..self }
    }

    pub(super) fn frames(&self) -> usize {
        self.log_probs.frames()
    }

    /// Returns the number of states.
    pub(super) fn states(&self) -> usize {
        2 * self.text.len() + 1
    }

    /// Returns the states that a complete path can have in a frame, because no path moves by more than two states.
    pub(super) fn reachable(&self, frame: usize) -> std::ops::Range<usize> {
        let last = self.states() - 1;
        let left = 2 * (self.frames() - 1 - frame);
        (last - 1.min(last)).saturating_sub(left)..(2 * frame + 2).min(last + 1)
    }

    /// Returns whether a path can go from state `state - 2` to `state`: past a blank, between different tokens.
    pub(super) fn skips(&self, state: usize) -> bool {
        state % 2 == 1 && state > 1 && self.text[state / 2] != self.text[state / 2 - 1]
    }

    /// Returns the score of a state in a frame.
    pub(super) fn score(&self, frame: usize, state: usize) -> f64 {
        if state.is_multiple_of(2) && self.gaps.get(state / 2) == Some(&true) {
            return self.gap_scores[frame];
        }
        self.log_prob(frame, state)
    }

    /// Returns the log-probability of a state in a frame; that of the blank for a gap.
    pub(super) fn log_prob(&self, frame: usize, state: usize) -> f64 {
        let token = if state.is_multiple_of(2) { 0 } else { self.text[state / 2] as usize };
        f64::from(self.log_probs.frame(frame)[token]).max(LEAST)
    }
}
