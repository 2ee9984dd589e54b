//! Frames of each utterance of a text in a long recording.

use super::chain::Chain;
use super::input::{AlignmentError, LogProbs};
use super::token_span::{TokenSpan, token_spans};
use super::viterbi::{TABLE_BYTES, best_path};

/// Settings of [`segment`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SegmentationOptions {
    /// Token between two words, such as a space. Other sounds may be said between words if it is given; otherwise only
    /// between utterances, before the first and after the last.
    pub separator: Option<u32>,
    /// How much worse than the best token of a frame the text must be before the frame counts as another sound, in
    /// log-probability.
    pub gap_penalty: f32,
    /// Number of frames over which the score of an utterance is averaged, at the worst place.
    pub window: usize,
}

impl Default for SegmentationOptions {
    fn default() -> Self {
        // The window is that of the Python package ctc-segmentation.
        Self { separator: None, gap_penalty: 0.5, window: 30 }
    }
}

/// Frames of one utterance.
#[derive(Clone, Debug, PartialEq)]
pub struct UtteranceSpan {
    /// First frame of the first token.
    pub first_frame: usize,
    /// Last frame of the last token; it belongs to the utterance.
    pub last_frame: usize,
    /// Mean log-probability of the utterance in the worst of its windows: near 0 if the recording says it, and far below
    /// if some part is not said.
    pub score: f32,
    /// Frames of each token.
    pub tokens: Vec<TokenSpan>,
}

/// Finds the frames of each utterance in a recording that may say more than the utterances, or not all of them.
///
/// The utterances are in the order of the recording. An utterance that is not said has frames too, with a low score.
/// `None` stands for an utterance without tokens.
///
/// # Errors
/// As for [`align`](super::align).
pub fn segment<T: AsRef<[u32]>>(
    log_probs: &LogProbs<'_>,
    utterances: &[T],
    options: SegmentationOptions,
) -> Result<Vec<Option<UtteranceSpan>>, AlignmentError> {
    let text: Vec<u32> = utterances.iter().flat_map(AsRef::as_ref).copied().collect();
    log_probs.check(&text)?;
    if text.is_empty() {
        return Ok(utterances.iter().map(|_| None).collect());
    }
    let mut gaps: Vec<bool> = text.iter().map(|token| Some(*token) == options.separator).collect();
    gaps.push(true);
    let mut start = 0;
    for utterance in utterances {
        gaps[start] = true;
        start += utterance.as_ref().len();
    }
    let chain = Chain::new(*log_probs, &text).with_gaps(gaps, options.gap_penalty.max(0.0));
    let path = best_path(&chain, TABLE_BYTES);
    let mut spans = token_spans(&chain, &text, &path).into_iter();
    let utterance = |utterance: &T| {
        let tokens: Vec<TokenSpan> = spans.by_ref().take(utterance.as_ref().len()).collect();
        let (first, last) = (tokens.first()?.first_frame, tokens.last()?.last_frame);
        let scores: Vec<f64> = (first..=last).map(|frame| chain.log_prob(frame, path[frame])).collect();
        let score = worst_window(&scores, options.window.max(1));
        Some(UtteranceSpan { first_frame: first, last_frame: last, score, tokens })
    };
    Ok(utterances.iter().map(utterance).collect())
}

/// Returns the least mean of `window` neighboring values, or the mean of all if there are fewer.
fn worst_window(values: &[f64], window: usize) -> f32 {
    let means = values.windows(window.min(values.len())).map(|part| part.iter().sum::<f64>() / part.len() as f64);
    means.fold(f64::INFINITY, f64::min) as f32
}
