//! What a step tells: what it did, or why it did not happen.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::{Bytes, CollectiveError, MicroBatch, OutOfMemory, Stage};

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// The step's number, the first being 1.
    pub step: u64,
    /// The loss, per unit of weight.
    pub loss: f64,
    /// What the loss is made of, by name, per unit of weight.
    pub parts: BTreeMap<&'static str, f64>,
    /// The norm of the gradient before it was clipped.
    pub norm: f64,
    /// The learning rate.
    pub rate: f64,
    /// The pieces that the batch was cut into, in the order in which they were added up: the step's line in the ledger.
    pub micro_batches: Vec<MicroBatch>,
    /// Pieces that were begun, those that did not fit included.
    pub attempts: usize,
    /// Whether the first of them lay on the device before the step began.
    pub was_prefetched: bool,
    /// What did not fit on the way.
    pub failures: Vec<OutOfMemory>,
    /// Utterances that were left out as they do not fit into memory alone.
    pub unfit: Vec<String>,
    /// Samples that no loss could be computed for.
    pub left_out: Vec<String>,
    /// Samples that the model's length policy cut short.
    pub truncated: Vec<String>,
    /// Frames of the batch, padding apart, over all replicas.
    pub frames: u64,
    /// Reads from the device that the step waited for: one, and one more for each that failed.
    pub reads: u32,
    /// How long the last of them took: what a device had left to compute when the host had nothing more to do.
    pub read_time: Duration,
    /// What the loss was multiplied by.
    pub loss_scale: f64,
    /// The most memory in use, and the stage in which it was.
    pub peak: (Bytes, Stage),
    /// Time spent on gate, governor and ledger.
    pub safety: Duration,
}

/// Why a step did not happen. Parameters and optimizer are as they were.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The loss or the gradient is not a number.
    #[error("the {what} of step {step} is {value}, in a piece with {}", listed(names))]
    NotFinite {
        /// The step's number.
        step: u64,
        /// Loss or gradient norm.
        what: &'static str,
        /// What it was.
        value: f64,
        /// The utterances of the pieces whose loss it was, or of the batch.
        names: Vec<String>,
        /// Whether that is no surprise: in fp16 the loss scale is too high now and then, and has fallen now.
        is_expected: bool,
    },
    /// The device could not compute it.
    #[error("the device failed in step {step}, with {}: {reason}", listed(names))]
    Device {
        /// The step's number.
        step: u64,
        /// The utterances that were computed.
        names: Vec<String>,
        /// What the device said.
        reason: String,
    },
    /// No utterance of the batch fits alone, and all were left out.
    #[error("no utterance of step {step} fits into memory, not even alone ({})", listed(names))]
    NothingFits {
        /// The step's number.
        step: u64,
        /// The utterances.
        names: Vec<String>,
    },
    /// The weights themselves were lost: memory ran out while they moved, which nobody can take back.
    #[error("memory ran out in the update of step {step}, and the weights are lost: go on from the last checkpoint")]
    WeightsLost {
        /// The step's number.
        step: u64,
    },
    /// Another replica could not compute its part, and says why itself.
    #[error("another replica failed in step {step}")]
    OtherReplica {
        /// The step's number.
        step: u64,
    },
    /// Another replica is gone.
    #[error("step {step} cannot be taken together")]
    ReplicaLost {
        /// The step's number.
        step: u64,
        /// Which one.
        source: CollectiveError,
    },
    /// An utterance does not fit, and the run is to stop then.
    #[error(
        "step {step} does not fit into memory, with one utterance at a time and every effort ({}): {source}",
        listed(names)
    )]
    OutOfMemory {
        /// The step's number.
        step: u64,
        /// The utterances.
        names: Vec<String>,
        /// What was said at the last attempt.
        source: OutOfMemory,
    },
}

/// The first of `names`, and how many there are.
fn listed(names: &[String]) -> String {
    const MOST: usize = 4;
    let mut text: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    if names.len() > MOST {
        text.push(format!("{} more", names.len() - MOST));
    }
    text.join(", ")
}
