//! What CTC says of one utterance, and the best path through it.

use super::{BLANK, possible};

/// Natural log-probabilities `[frames, vocabulary]` of one utterance; token 0 is the blank.
#[derive(Clone, Debug)]
pub struct CtcScores {
    log_probs: Vec<f32>,
    vocabulary: usize,
}

impl CtcScores {
    /// Takes log-probabilities, frame after frame. Minus infinity is allowed, and an utterance may have no frames.
    ///
    /// # Panics
    /// Where the vocabulary is empty or the last frame is not whole.
    pub fn new(mut log_probs: Vec<f32>, vocabulary: usize) -> Self {
        assert!(vocabulary > 0, "the blank at least is in the vocabulary");
        assert!(
            log_probs.len().is_multiple_of(vocabulary),
            "{} log-probabilities are no whole frames of {vocabulary}",
            log_probs.len()
        );
        log_probs.iter_mut().for_each(|value| *value = possible(*value));
        Self { log_probs, vocabulary }
    }

    /// Takes the scores before any softmax; the softmax of each frame is computed in 64 bits.
    ///
    /// # Panics
    /// Where the vocabulary is empty or the last frame is not whole.
    pub fn from_logits(mut logits: Vec<f32>, vocabulary: usize) -> Self {
        assert!(vocabulary > 0, "the blank at least is in the vocabulary");
        for row in logits.chunks_mut(vocabulary) {
            let highest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let sum: f64 = row.iter().map(|&x| (f64::from(x) - highest).exp()).sum();
            let total = highest + sum.ln();
            row.iter_mut().for_each(|x| *x = (f64::from(*x) - total) as f32);
        }
        Self::new(logits, vocabulary)
    }

    /// Frames of the utterance.
    pub fn frames(&self) -> usize {
        self.log_probs.len() / self.vocabulary
    }

    /// Tokens that each frame speaks of, the blank included.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The log-probabilities of frame `t`.
    pub fn row(&self, t: usize) -> &[f32] {
        &self.log_probs[t * self.vocabulary..(t + 1) * self.vocabulary]
    }

    /// The log-probability of `token` in frame `t`.
    pub(super) fn at(&self, t: usize, token: u32) -> f64 {
        f64::from(self.row(t)[token as usize])
    }
}

/// The best token of every frame, repeats collapsed and blanks dropped; of equal tokens the lowest is taken.
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
