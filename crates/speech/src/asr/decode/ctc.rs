//! The CTC output of one utterance, and its best path.

use super::{BLANK, possible};

/// CTC log-probabilities (natural) of one utterance, `[frames, vocabulary]`. Token 0 is the blank.
#[derive(Clone, Debug)]
pub struct CtcScores {
    log_probs: Vec<f32>,
    vocabulary: usize,
}

impl CtcScores {
    /// Makes the scores from log-probabilities, frame after frame. Minus infinity and zero frames are allowed; NaN
    /// counts as impossible.
    ///
    /// # Panics
    /// When `vocabulary` is 0 or does not divide the number of values.
    pub fn new(mut log_probs: Vec<f32>, vocabulary: usize) -> Self {
        assert!(vocabulary > 0, "the vocabulary holds at least the blank");
        assert!(
            log_probs.len().is_multiple_of(vocabulary),
            "{} log-probabilities are not a multiple of the vocabulary of {vocabulary}",
            log_probs.len()
        );
        log_probs.iter_mut().for_each(|value| *value = possible(*value));
        Self { log_probs, vocabulary }
    }

    /// Makes the scores from logits, frame after frame. Computes the log-softmax of each frame in 64 bits.
    ///
    /// # Panics
    /// When `vocabulary` is 0 or does not divide the number of values.
    pub fn from_logits(mut logits: Vec<f32>, vocabulary: usize) -> Self {
        assert!(vocabulary > 0, "the vocabulary holds at least the blank");
        for row in logits.chunks_mut(vocabulary) {
            let highest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let sum: f64 = row.iter().map(|&x| (f64::from(x) - highest).exp()).sum();
            let total = highest + sum.ln();
            row.iter_mut().for_each(|x| *x = (f64::from(*x) - total) as f32);
        }
        Self::new(logits, vocabulary)
    }

    /// Makes the scores of frames in which nothing is said: the blank is certain.
    ///
    /// # Panics
    /// When `vocabulary` is 0.
    pub fn silence(frames: usize, vocabulary: usize) -> Self {
        let mut log_probs = vec![f32::NEG_INFINITY; frames * vocabulary];
        log_probs.iter_mut().step_by(vocabulary).for_each(|blank| *blank = 0.0);
        Self::new(log_probs, vocabulary)
    }

    /// Returns the number of frames that have scores.
    pub fn frames(&self) -> usize {
        self.log_probs.len() / self.vocabulary
    }

    /// Returns the number of tokens that each frame scores, including the blank.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Returns all log-probabilities, frame after frame.
    pub fn log_probs(&self) -> &[f32] {
        &self.log_probs
    }

    /// Returns the log-probabilities of all tokens in frame `t`.
    ///
    /// # Panics
    /// When there is no frame `t`.
    pub fn row(&self, t: usize) -> &[f32] {
        &self.log_probs[t * self.vocabulary..(t + 1) * self.vocabulary]
    }

    /// Returns the log-probability of `token` in frame `t`.
    pub(super) fn at(&self, t: usize, token: u32) -> f64 {
        f64::from(self.row(t)[token as usize])
    }
}

/// Decodes the best path: takes the best token of each frame, collapses repeats and removes blanks. Of equally likely
/// tokens the lower number is taken.
pub fn ctc_best_path(scores: &CtcScores) -> Vec<u32> {
    let mut text = Vec::new();
    let mut before = BLANK;
    for t in 0..scores.frames() {
        let row = scores.row(t);
        let best = (1..row.len()).fold(0, |best, token| if row[token] > row[best] { token } else { best }) as u32;
        if best != before && best != BLANK {
            text.push(best);
        }
        before = best;
    }
    text
}
