//! Log-probabilities of a recording, and the errors of an alignment.

/// Log-probabilities of a CTC model for one recording: for each frame one number for each token. Id 0 is the blank.
#[derive(Clone, Copy, Debug)]
pub struct LogProbs<'a> {
    values: &'a [f32],
    tokens: usize,
}

/// Error of an alignment.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AlignmentError {
    /// The number of log-probabilities is no multiple of the number of tokens, or there are no tokens.
    #[error("{values} log-probabilities cannot be frames of {tokens} tokens")]
    Shape {
        /// Number of log-probabilities.
        values: usize,
        /// Number of tokens of a frame.
        tokens: usize,
    },
    /// A log-probability is NaN or positive infinity.
    #[error("the log-probability of token {token} in frame {frame} is not a number")]
    NotANumber {
        /// Frame of the log-probability.
        frame: usize,
        /// Token of the log-probability.
        token: usize,
    },
    /// A token of the text is the blank, or the model does not have it.
    #[error("token {token} at place {place} of the text is not among the tokens 1 to {last} of the model")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Its place in the text, from 0.
        place: usize,
        /// Last token of the model.
        last: usize,
    },
    /// The recording has fewer frames than the text needs: one for each token, and one more between equal tokens.
    #[error("the text needs {needed} frames, but the recording has {frames}")]
    TooFewFrames {
        /// Number of frames that the text needs.
        needed: usize,
        /// Number of frames of the recording.
        frames: usize,
    },
}

impl<'a> LogProbs<'a> {
    /// Takes log-probabilities frame by frame, `tokens` of them in each frame.
    ///
    /// # Errors
    /// When the frames are not complete, or a value is NaN or positive infinity. Negative infinity is accepted.
    pub fn new(values: &'a [f32], tokens: usize) -> Result<Self, AlignmentError> {
        if tokens == 0 || !values.len().is_multiple_of(tokens) {
            return Err(AlignmentError::Shape { values: values.len(), tokens });
        }
        match values.iter().position(|value| value.is_nan() || *value == f32::INFINITY) {
            Some(place) => Err(AlignmentError::NotANumber { frame: place / tokens, token: place % tokens }),
            None => Ok(Self { values, tokens }),
        }
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> usize {
        self.values.len() / self.tokens
    }

    /// Returns the log-probabilities of a frame.
    pub(super) fn frame(&self, frame: usize) -> &'a [f32] {
        &self.values[frame * self.tokens..][..self.tokens]
    }

    /// Checks that the text has tokens of the model, and that it is not longer than the recording.
    pub(super) fn check(&self, text: &[u32]) -> Result<(), AlignmentError> {
        let is_known = |token: u32| token > 0 && (token as usize) < self.tokens;
        if let Some(place) = text.iter().position(|&token| !is_known(token)) {
            return Err(AlignmentError::UnknownToken { token: text[place], place, last: self.tokens - 1 });
        }
        let needed = text.len() + text.windows(2).filter(|pair| pair[0] == pair[1]).count();
        let frames = self.frames();
        if needed > frames { Err(AlignmentError::TooFewFrames { needed, frames }) } else { Ok(()) }
    }
}
