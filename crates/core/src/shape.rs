//! Shape of a batch: the numbers that determine how much memory a step takes.

use serde::{Deserialize, Serialize};

use crate::Frames;

/// Shape of a padded batch.
///
/// If samples have no length (images of one size), `frames` and `tokens` are 1: see [`BatchShape::samples`]. If samples
/// have one length, `tokens` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchShape {
    /// Number of samples in the batch, such as utterances.
    pub utterances: u32,
    /// Number of feature frames of the longest sample, with padding.
    pub frames: Frames,
    /// Number of text tokens of the longest sample, with padding.
    pub tokens: u32,
}

impl BatchShape {
    /// Creates the shape of `count` samples without lengths.
    pub fn samples(count: u32) -> Self {
        Self { utterances: count, frames: Frames(1), tokens: 1 }
    }

    /// Returns the number of frames in the batch, with padding.
    pub fn frame_cells(&self) -> u64 {
        u64::from(self.utterances) * u64::from(self.frames.0)
    }

    /// Returns whether samples with the lengths of `other` are no longer than those of this shape.
    pub fn covers(self, other: Self) -> bool {
        self.frames >= other.frames && self.tokens >= other.tokens
    }

    /// Returns a shape with the same numbers of frames and tokens and another number of samples.
    pub fn with_utterances(self, utterances: u32) -> Self {
        Self { utterances, ..self }
    }
}

impl std::fmt::Display for BatchShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} frames x {} tokens", self.utterances, self.frames.0, self.tokens)
    }
}
