//! Result of a step: a report or an error.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::{Bytes, CollectiveError, MicroBatch, OutOfMemory, Stage};
use plimsoll_tape::failure::{FailureCause, UnsupportedDevice, without_traces};
use plimsoll_tape::gpu::Calls;

/// Report of a completed step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the step; the first is 1.
    pub step: u64,
    /// Loss of the batch divided by its [weight](plimsoll_tape::Task::weight), such as its number of tokens.
    pub loss: f64,
    /// Terms of the loss by name, each divided by the weight of the batch.
    pub parts: BTreeMap<&'static str, f64>,
    /// Norm of the gradient before clipping.
    pub norm: f64,
    /// Learning rate of the step.
    pub rate: f64,
    /// Micro-batches in the order in which they were added. This list is the step's entry in the ledger.
    pub micro_batches: Vec<MicroBatch>,
    /// Number of micro-batches started, including those that did not fit.
    pub attempts: usize,
    /// Whether the first micro-batch was prefetched.
    pub was_prefetched: bool,
    /// Out-of-memory failures of this step.
    pub failures: Vec<OutOfMemory>,
    /// Names of utterances that were left out because they do not fit into memory even alone.
    pub unfit: Vec<String>,
    /// Names of samples that were left out because their loss is not defined, such as too few frames for the text.
    pub left_out: Vec<String>,
    /// Names of samples that the model's length policy truncated.
    pub truncated: Vec<String>,
    /// Frames of the batch over all replicas, without padding.
    pub frames: u64,
    /// Number of reads from the device for which the step waited: 1, plus 1 for each failed read, plus the reads of the
    /// loss in each micro-batch.
    pub reads: u32,
    /// Kernels and uploads of this step; `None` on the CPU.
    pub calls: Option<Calls>,
    /// Duration of the last read from the device: the time that the device computed while the host waited.
    pub read_time: Duration,
    /// Factor on the loss, which prevents the underflow of small fp16 gradients.
    pub loss_scale: f64,
    /// Peak memory of the step, and the stage in which the peak occurred.
    pub peak: (Bytes, Stage),
    /// Time spent on memory gate, governor and ledger.
    pub safety: Duration,
}

/// Failure of a step. Except for [`StepError::WeightsLost`], weights and optimizer are unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The loss or the gradient norm is infinite or NaN.
    #[error("the {what} of step {step} is {value}, in a micro-batch with {}{}", listed(names), began(place.as_deref()))]
    NotFinite {
        /// Number of the step.
        step: u64,
        /// Name of the value that is not finite: `loss` or `gradient norm`.
        what: &'static str,
        /// Value that is infinite or NaN.
        value: f64,
        /// Names of the utterances in the micro-batches whose loss is infinite or NaN; if there is no such micro-batch,
        /// names of all utterances of the batch.
        names: Vec<String>,
        /// Whether the error is expected: in fp16 the loss scale is sometimes too high; it has been lowered.
        is_expected: bool,
        /// Place of the first value of the step that is infinite or NaN, such as the output of a layer; `None` if
        /// [`TrainerConfig::debug`](crate::TrainerConfig::debug) is off.
        place: Option<String>,
    },
    /// The device failed for a reason other than memory.
    #[error("the device failed in step {step}, with {}: {reason}{}", listed(names), advised(*cause))]
    Device {
        /// Number of the step.
        step: u64,
        /// Names of the utterances in the computation.
        names: Vec<String>,
        /// Cause of the failure.
        cause: FailureCause,
        /// Error message of the device.
        reason: String,
    },
    /// The crates were built without the operations of the device.
    #[error(transparent)]
    Unsupported(#[from] UnsupportedDevice),
    /// No utterance of the batch fits into memory even alone, so all were left out.
    #[error("no utterance of step {step} fits into memory, not even alone ({})", listed(names))]
    NothingFits {
        /// Number of the step.
        step: u64,
        /// Names of the utterances of the batch.
        names: Vec<String>,
    },
    /// No sample of the batch has a loss, such as utterances that are too short for their texts. There is nothing to learn
    /// from, so nothing was computed.
    #[error("no sample of the batch for step {step} has a loss ({})", listed(names))]
    Nothing {
        /// Number of the step.
        step: u64,
        /// Names of the samples of the batch, over all replicas.
        names: Vec<String>,
    },
    /// The update failed. The weights are lost, and the run must continue from a checkpoint.
    #[error("the update of step {step} failed, and the weights are lost: continue from the last checkpoint: {reason}")]
    WeightsLost {
        /// Number of the step.
        step: u64,
        /// Error message of the device.
        reason: String,
    },
    /// Another replica failed to compute its share.
    #[error("replica {rank} failed in step {step}: {reason}")]
    OtherReplica {
        /// Number of the step.
        step: u64,
        /// Rank of the replica that failed.
        rank: usize,
        /// Message of its error.
        reason: String,
    },
    /// The stop flag became true before the last micro-batch of the step began. Nothing has changed.
    #[error("step {step} was stopped")]
    Stopped {
        /// Number of the step.
        step: u64,
    },
    /// Another replica is gone.
    #[error("another replica is gone in step {step}")]
    ReplicaLost {
        /// Number of the step.
        step: u64,
        /// Error with the rank of the replica that is gone.
        source: CollectiveError,
    },
    /// An utterance does not fit into memory and the policy is [`Unfit::Stop`](crate::Unfit::Stop), or the norm could
    /// not be read.
    #[error(
        "step {step} does not fit into memory, even with one utterance at a time at the highest fallback level ({}): {source}",
        listed(names)
    )]
    OutOfMemory {
        /// Number of the step.
        step: u64,
        /// Names of the utterances in the micro-batch.
        names: Vec<String>,
        /// Failure of the last attempt.
        source: OutOfMemory,
    },
}

impl StepError {
    /// Makes the error of a device from its message.
    pub(crate) fn of_device(step: u64, names: Vec<String>, reason: String) -> Self {
        Self::Device { step, names, cause: FailureCause::from_message(&reason), reason: without_traces(&reason) }
    }

    /// Returns whether the device cannot be relied on after the error.
    pub(crate) fn is_of_device(&self) -> bool {
        matches!(self, Self::Device { .. } | Self::WeightsLost { .. } | Self::ReplicaLost { .. })
    }
}

/// Says what a person can do about a failure of the device.
fn advised(cause: FailureCause) -> String {
    cause.advice().map_or_else(String::new, |advice| format!("; {advice}"))
}

/// Names the place of the first value that is not finite, if it is known.
fn began(place: Option<&str>) -> String {
    place.map_or_else(String::new, |place| format!("; the first such value is in {place}"))
}

/// Lists the first names, and the number of the remaining names.
fn listed(names: &[String]) -> String {
    const MOST: usize = 4;
    let mut text: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    if names.len() > MOST {
        text.push(format!("{} more", names.len() - MOST));
    }
    text.join(", ")
}
