//! Reasons why no plan fits, and the changes that would make the run fit.

use plimsoll_core::{BatchShape, Bytes, Precision, counted};
use serde::Serialize;

use crate::trace::TraceError;

/// A change that makes a run fit its budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Change {
    /// Use smaller micro-batches.
    MicroBatch {
        /// Number of utterances in the smallest micro-batch of all lengths.
        utterances: u32,
    },
    /// Rematerialize blocks.
    #[serde(rename = "rematerialise")]
    Rematerialize {
        /// Largest number of rematerialized blocks of all lengths.
        blocks: u32,
        /// Number of blocks of the model.
        of: u32,
    },
    /// Compute attention in chunks of queries.
    Chunk {
        /// Number of queries in an attention chunk.
        queries: u32,
    },
    /// Compute matrix products in 16 bits.
    Precision {
        /// 16-bit format of the matrix products.
        precision: Precision,
    },
    /// Keep the optimizer state in 8 bits.
    #[serde(rename = "lean_optimizer")]
    EightBitOptimizer,
    /// Keep the optimizer state in host memory.
    HostOptimizer,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MicroBatch { utterances } => write!(f, "compute {} at once", counted(utterances, "utterance")),
            Self::Rematerialize { blocks, of } if blocks >= of => {
                f.write_str("compute every block a second time in the backward pass")
            }
            Self::Rematerialize { blocks, of } => {
                write!(f, "compute {blocks} of {of} blocks a second time in the backward pass")
            }
            Self::Chunk { queries } => write!(f, "compute attention {queries} queries at a time"),
            Self::Precision { precision } => {
                let name = if *precision == Precision::Bf16 { "bf16" } else { "fp16" };
                write!(f, "compute matrix products in {name}")
            }
            Self::EightBitOptimizer => f.write_str("keep the optimizer's state in 8 bits"),
            Self::HostOptimizer => f.write_str("keep the optimizer's state in host memory"),
        }
    }
}

/// Changes that together make a run fit its budget, the cheapest that were found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Remedy {
    /// Changes, all of which are needed.
    pub changes: Vec<Change>,
    /// Estimated time of a step with the changes, divided by its time without them on a device with enough memory.
    pub slowdown: f64,
}

impl std::fmt::Display for Remedy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let changes: Vec<String> = self.changes.iter().map(ToString::to_string).collect();
        match changes.split_last() {
            Some((last, [])) => f.write_str(last)?,
            Some((last, others)) => write!(f, "{} and {last}", others.join(", "))?,
            None => f.write_str("nothing has to change")?,
        }
        let percent = (self.slowdown - 1.0) * 100.0;
        match percent {
            1.0.. => write!(f, "; a step takes about {percent:.0} % longer"),
            ..=-1.0 => write!(f, "; a step takes about {:.0} % less time", -percent),
            _ => f.write_str("; a step takes about as long"),
        }
    }
}

/// A tensor that is larger than the device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedTensor {
    /// Size of the tensor.
    pub needed: Bytes,
    /// Largest size that the device allows.
    pub allowed: Bytes,
}

/// Describes what a micro-batch needs, and what is missing.
fn missing_text((needed, budget, missing): (Bytes, Bytes, Bytes), refused: Option<&RefusedTensor>) -> String {
    match refused {
        // It fits alone: see `does_not_fit`.
        None if missing.0 == 1 => format!("up to {budget}, the whole budget, and the run needs more beside it"),
        None => format!("{needed}, {missing} more than the budget of {budget}"),
        Some(RefusedTensor { needed, allowed }) => {
            format!("one tensor of {needed}, more than the device allows for one: {allowed}")
        }
    }
}

/// Reason why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The demand has no batch.
    #[error("there is nothing to plan: {what}")]
    Empty {
        /// Part of the demand that is missing.
        what: &'static str,
    },
    /// The memory budget is zero.
    #[error("a budget of {budget} holds nothing: the smallest plan needs {needed}")]
    NoBudget {
        /// Memory that the run may use.
        budget: Bytes,
        /// Peak memory of the smallest plan.
        needed: Bytes,
    },
    /// One bucket exceeds the budget in every way that the options allow.
    #[error(
        "a micro-batch of {} x {} frames needs {}",
        bucket.utterances, bucket.frames.0, missing_text((*needed, *budget, *missing), refused.as_deref())
    )]
    NothingFits {
        /// Shape of the micro-batch that does not fit.
        bucket: BatchShape,
        /// Peak memory of the micro-batch that does not fit.
        needed: Bytes,
        /// Memory that the run may use.
        budget: Bytes,
        /// Memory missing from the budget: `needed` minus `budget`; for one tensor that is refused, from what is allowed.
        missing: Bytes,
        /// The tensor that the device refuses although there is memory for the run; `None` if memory is missing.
        refused: Option<Box<RefusedTensor>>,
        /// The cheapest changes that would make the run fit; `None` if only a smaller model would.
        remedy: Option<Remedy>,
        /// Share of the parameters, between 0 and 1, that a model has to stay below to fit, if only a smaller model does. A
        /// model below it may still not fit.
        share: Option<f64>,
        /// Name of a smaller model that fits; `None` unless only a smaller model fits and the caller of the planner knows
        /// one.
        smaller: Option<String>,
    },
    /// The model could not be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl PlanError {
    /// Returns the advice of the error, for people: the changes that would make the run fit, or the size of a model that
    /// would fit. `None` if there is none.
    pub fn advice(&self) -> Option<String> {
        match self {
            Self::NothingFits { remedy: Some(remedy), .. } => Some(remedy.to_string()),
            Self::NothingFits { smaller: Some(name), .. } => Some(format!("use the model of {name}")),
            Self::NothingFits { share: Some(share), .. } => {
                let percent = (share * 100.0).floor();
                let smaller = "use a model of fewer layers or a smaller width";
                Some(match percent < 99.0 {
                    true => format!("{smaller}, with at most {percent:.0} % of the parameters"),
                    false => smaller.into(),
                })
            }
            _ => None,
        }
    }
}
