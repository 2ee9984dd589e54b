//! Reasons why no plan fits, and the cheapest change that would make the run fit.

use plimsoll_core::{BatchShape, Bytes, Choice, Precision, Remat, counted};
use serde::Serialize;

use crate::backend::BackendRules;
use crate::model::MemoryModel;
use crate::run_memory::StepMemory;
use crate::strategy::{Strategy, chunk_width, small_chunk};
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// A change that makes a run fit its budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Change {
    /// Use smaller micro-batches.
    MicroBatch {
        /// Largest number of utterances in a micro-batch that fits.
        utterances: u32,
    },
    /// Rematerialize every block.
    #[serde(rename = "rematerialise")]
    Rematerialize,
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
    /// Use a smaller model.
    SmallerModel {
        /// Share of the parameters that would fit, between 0.01 and 1.
        share: f64,
    },
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MicroBatch { utterances } => write!(f, "compute {} at once", counted(utterances, "utterance")),
            Self::Rematerialize => f.write_str("compute every block a second time in the backward pass"),
            Self::Chunk { queries } => write!(f, "compute attention {queries} queries at a time"),
            Self::Precision { precision } => {
                let name = if *precision == Precision::Bf16 { "bf16" } else { "fp16" };
                write!(f, "compute matrix products in {name}")
            }
            Self::EightBitOptimizer => f.write_str("keep the optimizer's state in 8 bits"),
            Self::SmallerModel { share } => {
                write!(f, "use a model of at most {:.0} % of the parameters", share * 100.0)
            }
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
    /// One bucket exceeds the budget in every way that the demand allows.
    #[error(
        "a micro-batch of {} x {} frames needs {needed}, {missing} more than the budget of {budget}",
        bucket.utterances, bucket.frames.0
    )]
    NothingFits {
        /// Shape of the micro-batch that does not fit.
        bucket: BatchShape,
        /// Peak memory of the micro-batch that does not fit.
        needed: Bytes,
        /// Memory that the run may use.
        budget: Bytes,
        /// Memory missing from the budget: `needed` minus `budget`.
        missing: Bytes,
        /// The cheapest change that would make the run fit, or `None` if no single change would.
        change: Option<Change>,
    },
    /// The model could not be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Makes the error for a micro-batch that needs more memory than `budget`, with the cheapest change that would make the
/// micro-batch fit.
///
/// Changes are tried from the cheapest to the most costly, and each is added to the changes before it: a smaller
/// micro-batch, rematerialization, smaller attention chunks, bf16, 8-bit optimizer state, a smaller model.
pub(crate) fn nothing_fits<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    (mut utterances, strategy): (u32, Strategy),
    needed: Bytes,
    budget: Bytes,
) -> Result<PlanError, TraceError> {
    let demand = model.demand();
    let missing = Bytes(needed.0 - budget.0);
    let micro_batch = bucket.with_utterances(utterances);
    let refused = |change| PlanError::NothingFits { bucket: micro_batch, needed, budget, missing, change };
    let mut smallest = strategy.choice(demand);
    let fits = |utterances: u32, choice: Choice| -> Result<bool, TraceError> {
        Ok(model.estimate(bucket, utterances, choice)?.peak <= budget)
    };
    if utterances > 1 {
        for fewer in (1..utterances).rev() {
            if fits(fewer, smallest)? {
                return Ok(refused(Some(Change::MicroBatch { utterances: fewer })));
            }
        }
        utterances = 1;
    }
    smallest.remat = Remat::All;
    if fits(utterances, smallest)? {
        return Ok(refused(Some(Change::Rematerialize)));
    }
    if let Some(chunk) = small_chunk().filter(|chunk| chunk_width(smallest.attention_chunk) > chunk.get()) {
        smallest.attention_chunk = Some(chunk);
        if fits(utterances, smallest)? {
            return Ok(refused(Some(Change::Chunk { queries: chunk.get() })));
        }
    }
    if demand.precision == Precision::Fp32 && matches!(demand.rules, BackendRules::Cube { .. }) {
        let low = Choice { precision: Precision::Bf16, ..smallest };
        // A model that cannot be computed in bf16 fails to trace; the next change is tried then.
        match fits(utterances, low) {
            Ok(true) => return Ok(refused(Some(Change::Precision { precision: Precision::Bf16 }))),
            Ok(false) => smallest = low,
            Err(_) => {}
        }
    }
    let estimate = model.estimate(bucket, utterances, smallest)?;
    let state_bits = demand.eight_bit_state_bits.min(demand.step.state_bits);
    let eight_bit = StepMemory { state_bits, ..demand.step };
    let saved = demand.step.state_of(model.values()).0 - eight_bit.state_of(model.values()).0;
    if saved > 0 && estimate.peak.0.saturating_sub(saved) <= budget.0 {
        return Ok(refused(Some(Change::EightBitOptimizer)));
    }
    // Activations shrink with the width of the model too, so the share of all memory is a share that fits.
    let share = budget.0 as f64 / estimate.peak.0 as f64;
    Ok(refused((share > 0.01).then_some(Change::SmallerModel { share })))
}
