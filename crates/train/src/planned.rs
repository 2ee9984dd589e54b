//! What a memory plan says about batches of each length: how many utterances are computed at once, and the peak of the step.

use plimsoll_core::{BatchShape, Bytes, Choice, Frames};

/// Planned limit on the utterances computed at once, for batches up to one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedLimit {
    /// Largest frames and tokens of a batch that this limit covers. The number of utterances has no meaning here.
    pub shape: BatchShape,
    /// Largest number of utterances computed at once, in all lanes together.
    pub limit: usize,
    /// Execution choice of the micro-batches that this limit covers.
    pub choice: Choice,
}

/// Peaks of memory that are planned for the steps of each length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannedPeaks(Vec<(BatchShape, Bytes)>);

impl PlannedPeaks {
    /// Makes the list from a planned shape and the peak of its steps, in any order.
    pub fn new(mut peaks: Vec<(BatchShape, Bytes)>) -> Self {
        peaks.sort_by_key(|(shape, _)| by_length(*shape));
        Self(peaks)
    }

    /// Returns the peak of a step whose batch has the lengths of `shape`: that of the shortest planned length that covers it,
    /// as a [`Governor`](crate::Governor) takes its limit. `None` if the batch is longer than all planned lengths.
    ///
    /// Another length that covers the batch, too, may have a lower peak: where fewer utterances are computed at once.
    pub fn of(&self, shape: BatchShape) -> Option<Bytes> {
        self.0.iter().find(|(planned, _)| planned.covers(shape)).map(|(_, peak)| *peak)
    }
}

/// Returns the key that sorts planned shapes by length.
pub(crate) fn by_length(shape: BatchShape) -> (Frames, u32) {
    (shape.frames, shape.tokens)
}
