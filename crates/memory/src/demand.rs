//! The input of a plan: batch sizes, lengths, the backend, and the options among which the planner may choose.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Precision};

use crate::backend::BackendRules;
use crate::run_memory::StepMemory;

/// Requirements of a training run, independent of the GPU and its budget.
///
/// [`Demand::new`] gives defaults; the fields can be changed one by one.
#[derive(Clone, Debug)]
pub struct Demand {
    /// One batch shape for each length bucket. `utterances` is the whole batch of a step, before it is split into
    /// micro-batches.
    pub buckets: Vec<BatchShape>,
    /// Number of blocks of the model that support rematerialization.
    pub blocks: u32,
    /// Candidate counts of rematerialized blocks; the planner takes the fastest count that fits.
    pub remat_counts: Vec<u32>,
    /// Candidate chunk sizes of attention in queries; `None` computes all queries at once.
    pub chunks: Vec<Option<NonZeroU32>>,
    /// Precision of the matrix products of the run.
    pub precision: Precision,
    /// Fixed size of a micro-batch in utterances; `None` lets the planner choose it.
    pub micro_batch: Option<u32>,
    /// Backend that computes the run. Its rules decide how much memory each operation takes.
    pub rules: BackendRules,
    /// Memory of a step beside its micro-batches. The planner sets `micro_batches`, `host_batch` and `prefetch` for
    /// each bucket.
    pub step: StepMemory,
    /// Batches that are sent to the device ahead of their step.
    pub prefetch: u32,
    /// Size of 8-bit optimizer state, in bits for each parameter value with its scales. If nothing fits, the planner
    /// checks whether a run with 8-bit state would fit.
    pub eight_bit_state_bits: u64,
}

impl Demand {
    /// Makes the demand of a run over `buckets` in fp32 with AdamW, one prefetched batch and no rematerialization.
    pub fn new(buckets: Vec<BatchShape>, rules: BackendRules) -> Self {
        Self {
            buckets,
            blocks: 0,
            remat_counts: vec![0],
            chunks: vec![None],
            precision: Precision::Fp32,
            micro_batch: None,
            rules,
            step: StepMemory::default(),
            prefetch: 1,
            eight_bit_state_bits: 17,
        }
    }

    /// Returns counts of rematerialized blocks from none to all of `blocks`, in at most nine values.
    pub fn remat_counts_up_to(blocks: u32) -> Vec<u32> {
        let mut counts: Vec<u32> = (0..=8).map(|eighths| blocks * eighths / 8).collect();
        counts.dedup();
        counts
    }

    /// Returns the same demand for a model of `blocks` blocks, any number of which may be rematerialized.
    #[must_use]
    pub fn with_blocks(self, blocks: u32) -> Self {
        Self { blocks, remat_counts: Self::remat_counts_up_to(blocks), ..self }
    }
}
