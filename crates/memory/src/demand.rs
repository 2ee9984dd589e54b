//! The input of a plan: batch sizes, lengths, the backend, and the options among which the planner may choose.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Bytes, Precision, Remat, StateForm};
use serde::{Deserialize, Serialize};

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
    /// Settings that a plan may choose from.
    pub options: PlanOptions,
    /// Settings that an error may suggest if no plan fits with `options`: these and those of `options` together.
    pub remedies: PlanOptions,
    /// The backend that computes the run.
    pub rules: BackendRules,
    /// Memory of a step beside the model. The planner sets `micro_batches`, `host_batch`, `prefetch` and `state_bits`.
    pub step: StepMemory,
    /// Batches that are sent to the device ahead of their step.
    pub prefetch: u32,
}

/// Settings that a plan may choose from. Each list holds at least one value.
///
/// Rematerialization, attention chunk and micro-batch are chosen for each length; precision and optimizer state hold for
/// the whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    /// Candidate sets of rematerialized blocks.
    pub remat: Vec<Remat>,
    /// Candidate chunk sizes of attention in queries; `None` computes all queries at once, unless the model itself has a
    /// chunk size.
    pub chunks: Vec<Option<NonZeroU32>>,
    /// Fixed size of a micro-batch in utterances; `None` lets the planner choose it.
    pub micro_batch: Option<u32>,
    /// Largest memory of a micro-batch beside weights and gradients; `None` for no limit of its own.
    pub activations: Option<Bytes>,
    /// Candidate precisions of the matrix products.
    pub precisions: Vec<Precision>,
    /// Candidate forms of the optimizer state.
    pub states: Vec<StateOption>,
}

/// A form in which the optimizer can keep its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateOption {
    /// Form of the state.
    pub form: StateForm,
    /// Bits of device memory for each parameter value.
    pub bits: u64,
    /// Bytes for each parameter value that a step moves between host and device, both directions together.
    pub moved_bytes: u64,
}

impl StateOption {
    /// AdamW's state in fp32 on the device.
    pub const FULL: Self = Self { form: StateForm::Full, bits: 64, moved_bytes: 0 };
    /// AdamW's state in 8 bits on the device, with its scales.
    pub const EIGHT: Self = Self { form: StateForm::Eight, bits: 17, moved_bytes: 0 };
    /// AdamW's state in fp32 on the host: 8 bytes for each value go to the device and back in each step.
    pub const HOST: Self = Self { form: StateForm::Host, bits: 0, moved_bytes: 16 };
}

impl PlanOptions {
    /// Makes the options of a run that computes whole attention in fp32, keeps all activations and the whole state of
    /// AdamW, and leaves only the micro-batch to the planner.
    pub fn new() -> Self {
        Self {
            remat: vec![Remat::None],
            chunks: vec![None],
            micro_batch: None,
            activations: None,
            precisions: vec![Precision::Fp32],
            states: vec![StateOption::FULL],
        }
    }

    /// Returns the same options with any number of `blocks` blocks rematerialized, attention whole or in chunks of
    /// 256 or 64 queries, and micro-batches of any size. Results differ only by rounding.
    #[must_use]
    pub fn with_free_computation(mut self, blocks: u32) -> Self {
        let counts = remat_counts_up_to(blocks).into_iter().map(|count| Remat::count_of(count, blocks));
        extend(&mut self.remat, counts);
        extend(&mut self.chunks, [None]);
        extend(&mut self.chunks, CHUNKS);
        Self { micro_batch: None, ..self }
    }

    /// Returns the options of `self` and of `other` together. A micro-batch is fixed only if both fix it.
    pub(crate) fn joined(&self, other: &Self) -> Self {
        let mut joined = self.clone();
        extend(&mut joined.remat, other.remat.iter().copied());
        extend(&mut joined.chunks, other.chunks.iter().copied());
        extend(&mut joined.precisions, other.precisions.iter().copied());
        extend(&mut joined.states, other.states.iter().copied());
        joined.micro_batch = self.micro_batch.and(other.micro_batch);
        joined.activations = self.activations.and(other.activations);
        joined
    }
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Attention chunks that are tried to save memory: of 256 queries, which costs little time, and of 64, which saves more and
/// is still enough to keep a GPU busy.
const CHUNKS: [Option<NonZeroU32>; 2] = [NonZeroU32::new(256), NonZeroU32::new(64)];

/// Lists counts of rematerialized blocks from none to all of `blocks`, in at most nine values.
fn remat_counts_up_to(blocks: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = (0..=8).map(|eighths| blocks * eighths / 8).collect();
    counts.dedup();
    counts
}

/// Adds those of `values` to `list` that it does not hold yet.
fn extend<T: PartialEq>(list: &mut Vec<T>, values: impl IntoIterator<Item = T>) {
    for value in values {
        if !list.contains(&value) {
            list.push(value);
        }
    }
}

impl Demand {
    /// Makes the demand of a run over `buckets` with [`PlanOptions::new`] and one prefetched batch. Errors may suggest bf16,
    /// and AdamW's state in 8 bits or on the host.
    pub fn new(buckets: Vec<BatchShape>, rules: BackendRules) -> Self {
        let states = vec![StateOption::FULL, StateOption::EIGHT, StateOption::HOST];
        let precisions = vec![Precision::Fp32, Precision::Bf16];
        Self {
            buckets,
            blocks: 0,
            options: PlanOptions::new(),
            remedies: PlanOptions { precisions, states, ..PlanOptions::new() }.with_free_computation(0),
            rules,
            step: StepMemory::default(),
            prefetch: 1,
        }
    }

    /// Returns the same demand for a model of `blocks` blocks, any number of which may be rematerialized.
    #[must_use]
    pub fn with_blocks(self, blocks: u32) -> Self {
        let remat: Vec<Remat> =
            remat_counts_up_to(blocks).into_iter().map(|count| Remat::count_of(count, blocks)).collect();
        let remedies = self.remedies.with_free_computation(blocks);
        Self { blocks, options: PlanOptions { remat, ..self.options }, remedies, ..self }
    }
}
