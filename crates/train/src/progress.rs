//! What a run tells whoever watches it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_core::{Bytes, Measure, OutOfMemory, Position, Skipped, Stage};
use serde::Serialize;

use crate::Cut;

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
        /// The pieces, as place, length and effort, in the order in which they were added up: with the position they are
        /// the ledger of who was in the step.
        cuts: Vec<Cut>,
        /// Pieces that were begun, those that did not fit included.
        begun: usize,
        /// What the loss was multiplied by, in fp16.
        #[serde(skip_serializing_if = "is_one")]
        loss_scale: f64,
        /// Reads from the device that the step waited for.
        reads: u32,
        /// Seconds spent on keeping the step safe: gate, governor, ledger and the record of the step before.
        safety_seconds: f64,
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
    /// Something did not fit into memory. It was computed in smaller pieces, and the run goes on.
    OutOfMemory {
        /// In this step, or after it.
        step: u64,
        /// Where, and what was said.
        failure: OutOfMemory,
        /// Utterances of this length computed at once from now on.
        limit: usize,
    },
    /// Utterances were left out, as they do not fit alone.
    Unfit {
        /// In this step.
        step: u64,
        /// The utterances.
        names: Vec<String>,
    },
    /// A step took more memory than was planned for it.
    Drift {
        /// Its number.
        step: u64,
        /// The phase in which it did.
        phase: Stage,
        /// What was planned.
        planned_bytes: Bytes,
        /// What it took.
        peak_bytes: Bytes,
    },
    /// The learning rate was lowered, as validations no longer got better.
    RateLowered {
        /// After this step.
        step: u64,
        /// What it is multiplied by from now on.
        factor: f64,
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
    /// A checkpoint could not be written, and the run goes on; those before it are as they were.
    NotSaved {
        /// After this step.
        step: u64,
        /// Why.
        reason: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_one(factor: &f64) -> bool {
    *factor == 1.0
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
