//! Types of the events of a run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::lenient;
use super::time::TimeShares;
use crate::{BatchShape, Bytes, Measure, OutOfMemory, PoolMemory, Position, Skipped, Stage};

/// Something that happened in a run.
///
/// In JSON the key `event` holds the name of the variant, in snake case, beside the fields of the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A training step was taken.
    Step(StepEvent),
    /// A training step was not taken, and the run continues.
    Skipped {
        /// Number that the skipped step would have had.
        step: u64,
        /// Reason why the step was not taken.
        #[serde(default)]
        reason: String,
    },
    /// Samples were left out of a batch because they could not be read or are too short for their text.
    LeftOut {
        /// Samples that were left out, with the reason for each sample.
        samples: Vec<Skipped>,
    },
    /// A computation did not fit into memory. It was repeated in smaller parts, and the run continues.
    OutOfMemory {
        /// Step in which or after which the memory ran out.
        step: u64,
        /// Stage of the work in which memory ran out, and the message of the device.
        failure: OutOfMemory,
        /// New maximum size of a micro-batch, in utterances, for batches of the length that ran out of memory.
        limit: usize,
    },
    /// Utterances were left out because they do not fit into memory even alone.
    Unfit {
        /// Step that the utterances belong to.
        step: u64,
        /// Names of the utterances that were left out.
        names: Vec<String>,
    },
    /// A step used more memory than was planned for it.
    Drift {
        /// Number of the step that used more memory than planned.
        step: u64,
        /// Stage of the step with the highest memory use.
        phase: Stage,
        /// Memory planned for the step.
        planned_bytes: Bytes,
        /// Highest memory use of the step.
        peak_bytes: Bytes,
    },
    /// Memory pools of the GPU, read at the end of the run or of this part of it.
    Pools {
        /// Number of the last completed step.
        step: u64,
        /// What the pools hold.
        #[serde(default)]
        memory: PoolMemory,
    },
    /// The learning rate was lowered because validations no longer improved.
    RateLowered {
        /// Step after which the learning rate was lowered.
        step: u64,
        /// Factor on the scheduled learning rate from now on.
        factor: f64,
    },
    /// The number of steps that a limit of time allows was measured. The learning rate ends with them.
    Paced {
        /// Step after which it was measured.
        step: u64,
        /// Number of steps of the whole run.
        #[serde(default)]
        steps: u64,
        /// Training time of the run so far, in seconds.
        #[serde(default)]
        seconds: f64,
    },
    /// The model was validated.
    Validated {
        /// Step after which the model was validated.
        step: u64,
        /// Number of completed epochs.
        #[serde(default)]
        epoch: u64,
        /// Measured scores of the model.
        #[serde(default, deserialize_with = "lenient::scores")]
        scores: Vec<Measure>,
        /// Duration of the validation in seconds.
        #[serde(default)]
        seconds: f64,
        /// Whether this validation is the best so far.
        #[serde(default)]
        best: bool,
        /// Peak memory of the validation.
        #[serde(default)]
        peak_bytes: Bytes,
    },
    /// A checkpoint was written.
    Saved {
        /// Step whose state the checkpoint holds.
        step: u64,
        /// Folder of the checkpoint. A part of the path that is not Unicode is replaced.
        #[serde(default, serialize_with = "lenient::path")]
        path: PathBuf,
    },
    /// A checkpoint could not be written. The run continues, and earlier checkpoints are unchanged.
    NotSaved {
        /// Step whose state the checkpoint would have held.
        step: u64,
        /// Reason why the checkpoint was not written.
        #[serde(default)]
        reason: String,
    },
    /// The run ended, or this part of it: a run that is resumed writes further events.
    Ended {
        /// Number of the last completed step.
        step: u64,
        /// Kind of the end.
        #[serde(default)]
        end: EndKind,
        /// Reason why the run failed; empty for other kinds.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// Time since the last step was recorded, by owner. Empty if not measured.
        #[serde(default, skip_serializing_if = "TimeShares::is_empty")]
        times: TimeShares,
    },
    /// The number of utterances that are computed at once was lowered. Only read, never written: schema version 0 used
    /// this event in place of [`Event::OutOfMemory`].
    Lowered {
        /// Step after which the limit was lowered.
        step: u64,
        /// Number of utterances that are computed at once from now on.
        #[serde(default)]
        limit: usize,
        /// Memory that the step used.
        #[serde(default)]
        peak_bytes: Bytes,
    },
    /// An event of a newer schema, whose fields are skipped.
    #[serde(other)]
    Unknown,
}

impl Event {
    /// Returns the step that the event names; `None` for an event without a step.
    pub fn step(&self) -> Option<u64> {
        match self {
            Self::Step(StepEvent { step, .. })
            | Self::Skipped { step, .. }
            | Self::OutOfMemory { step, .. }
            | Self::Unfit { step, .. }
            | Self::Drift { step, .. }
            | Self::Pools { step, .. }
            | Self::RateLowered { step, .. }
            | Self::Paced { step, .. }
            | Self::Validated { step, .. }
            | Self::Saved { step, .. }
            | Self::NotSaved { step, .. }
            | Self::Ended { step, .. }
            | Self::Lowered { step, .. } => Some(*step),
            Self::LeftOut { .. } | Self::Unknown => None,
        }
    }
}

/// Kind of the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EndKind {
    /// A limit of the run was reached, or the data ended.
    Complete,
    /// Validations no longer improved.
    Stale,
    /// A signal stopped the run.
    Stopped,
    /// An error ended the run.
    Failed,
    /// A kind of a newer schema.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Record of one training step.
///
/// A training loop that does not measure a field leaves it at its default. An unknown number is NaN, which is `null` in
/// JSON; other fields default to zero or empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepEvent {
    /// Number of the step; the first step is 1.
    pub step: u64,
    /// Position in the data after the step.
    #[serde(deserialize_with = "lenient::position")]
    pub position: Position,
    /// Loss of the batch divided by its weight, such as its number of tokens.
    #[serde(deserialize_with = "lenient::number")]
    pub loss: f64,
    /// Terms of the loss by name, each divided by the weight of the batch.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "lenient::numbers")]
    pub parts: BTreeMap<Cow<'static, str>, f64>,
    /// Norm of the gradient before clipping.
    #[serde(deserialize_with = "lenient::number")]
    pub norm: f64,
    /// Learning rate of the step.
    #[serde(deserialize_with = "lenient::number")]
    pub rate: f64,
    /// Number of micro-batches that the batch was computed in.
    #[serde(rename = "pieces")]
    pub micro_batches: usize,
    /// Micro-batches in the order in which their gradients were added. Together with the position before the step, this
    /// list is the ledger: it identifies the utterances of the step.
    #[serde(rename = "cuts")]
    pub ledger: Vec<MicroBatch>,
    /// Number of micro-batches that were started, including those that ran out of memory.
    #[serde(rename = "begun")]
    pub attempts: usize,
    /// Factor on the loss in fp16; not written when it is 1.
    #[serde(skip_serializing_if = "is_one")]
    pub loss_scale: f64,
    /// Number of reads from the device that the step waited for.
    pub reads: u32,
    /// Number of kernels that the step launched, on all GPUs of the process; `None` on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<u32>,
    /// Number of tensors that the step copied to GPUs; `None` on the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploads: Option<u32>,
    /// Time in seconds spent on safety: memory gate, governor, ledger, and recording of the previous step.
    #[serde(deserialize_with = "lenient::number")]
    pub safety_seconds: f64,
    /// Number of samples that the model's length policy truncated.
    #[serde(rename = "cut")]
    pub truncated: usize,
    /// Audio of the batch as a number of feature frames, without padding.
    pub frames: u64,
    /// Shape of the batch with its padding; `None` if not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<BatchShape>,
    /// Share of the batch that is padding.
    #[serde(deserialize_with = "lenient::number")]
    pub padding: f64,
    /// Duration of the step in seconds, without waiting for data.
    #[serde(deserialize_with = "lenient::number")]
    pub step_seconds: f64,
    /// Time in seconds that the step waited for its batch.
    #[serde(deserialize_with = "lenient::number")]
    pub wait_seconds: f64,
    /// Peak memory use of the step.
    pub peak_bytes: Bytes,
    /// Time since the previous step was recorded, by owner: the step, what it waited for, and what came between the two,
    /// such as a validation. Empty if not measured.
    #[serde(skip_serializing_if = "TimeShares::is_empty")]
    pub times: TimeShares,
}

impl Default for StepEvent {
    fn default() -> Self {
        Self {
            step: 0,
            position: Position::default(),
            loss: f64::NAN,
            parts: BTreeMap::new(),
            norm: f64::NAN,
            rate: f64::NAN,
            micro_batches: 0,
            ledger: Vec::new(),
            attempts: 0,
            loss_scale: 1.0,
            reads: 0,
            launches: None,
            uploads: None,
            safety_seconds: 0.0,
            truncated: 0,
            frames: 0,
            shape: None,
            padding: 0.0,
            step_seconds: 0.0,
            wait_seconds: 0.0,
            peak_bytes: Bytes(0),
            times: TimeShares::default(),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_one(factor: &f64) -> bool {
    *factor == 1.0
}

/// Part of a batch that is computed at once: neighboring utterances. In JSON `[start, len, fallback_level]`.
///
/// The micro-batches of a step, in the order in which their gradients were added, are enough to repeat the step; on the
/// CPU to the last bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 3]", into = "[u32; 3]")]
pub struct MicroBatch {
    /// Index in the batch of the first utterance of the micro-batch.
    pub start: u32,
    /// Number of utterances in the micro-batch.
    pub len: u32,
    /// Fallback level at which the micro-batch was computed: 0 is the planned way; higher levels take less memory and
    /// more time. Utterances that were left out have [`MicroBatch::LEFT_OUT`].
    pub fallback_level: u32,
}

impl MicroBatch {
    /// Fallback level of utterances that were left out because they did not fit into memory at any level.
    pub const LEFT_OUT: u32 = u32::MAX;

    /// Returns the indices in the batch of the utterances of this micro-batch.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

impl From<[u32; 3]> for MicroBatch {
    fn from([start, len, fallback_level]: [u32; 3]) -> Self {
        Self { start, len, fallback_level }
    }
}

impl From<MicroBatch> for [u32; 3] {
    fn from(part: MicroBatch) -> Self {
        [part.start, part.len, part.fallback_level]
    }
}
