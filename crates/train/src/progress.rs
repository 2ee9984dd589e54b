//! What a run tells whoever watches it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_core::{Bytes, Measure, Position, Skipped};
use serde::Serialize;

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A step happened.
    Step {
        /// Its number, the first being 1.
        step: u64,
        /// Where the run stands after it.
        position: Position,
        /// The loss, per unit of weight.
        loss: f64,
        /// What the loss is made of, by name, per unit of weight.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        parts: BTreeMap<&'static str, f64>,
        /// The norm of the gradient before clipping.
        norm: f64,
        /// The learning rate.
        rate: f64,
        /// Pieces that the batch was cut into.
        pieces: usize,
        /// Samples that the model's length policy cut short.
        cut: usize,
        /// Seconds of audio frames in the batch, padding apart, as a count of frames.
        frames: u64,
        /// Share of the batch that is padding.
        padding: f64,
        /// Seconds that the step took, waiting apart.
        step_seconds: f64,
        /// Seconds waited for the batch.
        wait_seconds: f64,
        /// The most memory in use in the step.
        peak_bytes: Bytes,
    },
    /// A step did not happen, and the run goes on.
    Skipped {
        /// Its number.
        step: u64,
        /// Why.
        reason: String,
    },
    /// Samples were left out of a batch.
    LeftOut {
        /// The samples, with the reason for each.
        samples: Vec<Skipped>,
    },
    /// The governor lowered its limit.
    Lowered {
        /// After this step.
        step: u64,
        /// Utterances computed at once from now on.
        limit: usize,
        /// What the step took.
        peak_bytes: Bytes,
    },
    /// The model was validated.
    Validated {
        /// After this step.
        step: u64,
        /// Epochs completed.
        epoch: u64,
        /// The scores, by name.
        scores: Vec<Measure>,
        /// Seconds that it took.
        seconds: f64,
        /// Whether it is the best so far.
        best: bool,
        /// The most memory in use meanwhile.
        peak_bytes: Bytes,
    },
    /// A checkpoint was written.
    Saved {
        /// After this step.
        step: u64,
        /// Where.
        path: PathBuf,
    },
}

/// Whoever watches a run: a progress bar, a record on disk, a test.
pub trait Observer {
    /// Something happened.
    fn observe(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Observer for F {
    fn observe(&mut self, event: &Event) {
        self(event);
    }
}
