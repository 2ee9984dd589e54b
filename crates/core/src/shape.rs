//! The shape of a batch: all that decides how much memory a step takes.

use serde::{Deserialize, Serialize};

use crate::Frames;

/// How large a padded batch is, without what is in it.
///
/// A model whose samples have no length, such as a classifier of images of one size, leaves both lengths at 1: see
/// [`BatchShape::samples`]. One whose samples have a single length leaves `tokens` at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchShape {
    /// Utterances in the batch.
    pub utterances: u32,
    /// Feature frames of the longest, as padded.
    pub frames: Frames,
    /// Text tokens of the longest, as padded.
    pub tokens: u32,
}

impl BatchShape {
    /// The shape of `count` samples without lengths.
    pub fn samples(count: u32) -> Self {
        Self { utterances: count, frames: Frames(1), tokens: 1 }
    }

    /// Frames in the padded batch, padding included.
    pub fn frame_cells(&self) -> u64 {
        u64::from(self.utterances) * u64::from(self.frames.0)
    }

    /// The same lengths with another number of utterances.
    pub fn with_utterances(self, utterances: u32) -> Self {
        Self { utterances, ..self }
    }
}

impl std::fmt::Display for BatchShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} frames x {} tokens", self.utterances, self.frames.0, self.tokens)
    }
}
