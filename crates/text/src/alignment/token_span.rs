//! Frames of each token of a text.

use super::chain::Chain;
use super::input::{AlignmentError, LogProbs};
use super::viterbi::{TABLE_BYTES, best_path};

/// Frames of one token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenSpan {
    /// Id of the token.
    pub token: u32,
    /// First frame of the token.
    pub first_frame: usize,
    /// Last frame of the token; it belongs to the token.
    pub last_frame: usize,
    /// Mean log-probability of the token in its frames.
    pub score: f32,
}

/// Finds the most probable frames of each token of `text`.
///
/// The result is exact (Viterbi). The time grows with frames times tokens. Up to 128 MiB of backpointers are kept; for
/// longer recordings the memory grows with the square root of the frames, and the time doubles.
///
/// # Errors
/// When a token is the blank or unknown, or the recording has too few frames for the text.
pub fn align(log_probs: &LogProbs<'_>, text: &[u32]) -> Result<Vec<TokenSpan>, AlignmentError> {
    log_probs.check(text)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let chain = Chain::new(*log_probs, text);
    Ok(token_spans(&chain, text, &best_path(&chain, TABLE_BYTES)))
}

/// Makes the spans of a path.
pub(super) fn token_spans(chain: &Chain<'_>, text: &[u32], path: &[usize]) -> Vec<TokenSpan> {
    let mut spans: Vec<TokenSpan> = Vec::with_capacity(text.len());
    let mut sum = 0.0;
    for (frame, &state) in path.iter().enumerate().filter(|(_, state)| *state % 2 == 1) {
        let log_prob = chain.log_prob(frame, state);
        if spans.len() == state / 2 {
            spans.push(TokenSpan { token: text[state / 2], first_frame: frame, last_frame: frame, score: 0.0 });
            sum = 0.0;
        }
        sum += log_prob;
        if let Some(span) = spans.last_mut() {
            span.last_frame = frame;
            span.score = (sum / (frame - span.first_frame + 1) as f64) as f32;
        }
    }
    spans
}
