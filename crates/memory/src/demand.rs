//! What a run asks of a device.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Precision};

use crate::backend::BackendRules;
use crate::run_memory::StepMemory;

/// What a run wants, whatever the card.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The batches of a step, one for each length: the shape says how many utterances a step has, and how long they are.
    pub buckets: Vec<BatchShape>,
    /// How many blocks the model can compute a second time.
    pub blocks: u32,
    /// How many of them may be; the fastest number of these is taken.
    pub remat_counts: Vec<u32>,
    /// Chunks that attention may be computed in.
    pub chunks: Vec<Option<NonZeroU32>>,
    /// Numbers to compute in.
    pub precision: Precision,
    /// Utterances of a piece, where they are not to be found.
    pub micro_batch: Option<u32>,
    /// Whose memory it is.
    pub rules: BackendRules,
    /// How a step is run; pieces, host batch and prefetch are filled in for each bucket.
    pub step: StepMemory,
    /// Batches that wait on the device.
    pub prefetch: u32,
    /// What `step.state_bits` would be with a state in 8 bits, for whoever needs that.
    pub eight_bit_state_bits: u64,
}

impl Demand {
    /// A run of steps of `buckets` in fp32 with AdamW, one batch ahead, of a model that computes nothing a second time.
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

    /// Every number of second passes from none to all of `blocks`, in at most nine steps.
    pub fn remat_counts_up_to(blocks: u32) -> Vec<u32> {
        let mut passes: Vec<u32> = (0..=8).map(|eighths| blocks * eighths / 8).collect();
        passes.dedup();
        passes
    }

    /// The same demand of a model of `blocks` blocks, of which any number may be computed a second time.
    #[must_use]
    pub fn with_blocks(self, blocks: u32) -> Self {
        Self { blocks, remat_counts: Self::remat_counts_up_to(blocks), ..self }
    }
}
