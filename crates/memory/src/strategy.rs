//! The strategies for one bucket, the largest micro-batch of each that fits, and the fastest micro-batch.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Bytes, Choice, Remat};

use crate::cost::{Cost, Speed};
use crate::demand::Demand;
use crate::model::MemoryModel;
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// A way to compute the batches of a bucket: how many blocks are rematerialized, and how many queries attention
/// computes at once. All strategies give the same result, but need different memory and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strategy {
    /// Number of blocks that are rematerialized.
    pub(crate) remat_count: u32,
    /// Number of queries that attention computes at once; `None` for all queries.
    pub(crate) chunk: Option<NonZeroU32>,
}

/// A strategy with a size of micro-batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// How a micro-batch is computed.
    pub(crate) strategy: Strategy,
    /// Number of utterances in a micro-batch.
    pub(crate) micro_batch: u32,
    /// Estimated seconds of a whole step.
    pub(crate) seconds: f64,
}

impl Strategy {
    /// Lists every strategy that `demand` allows.
    pub(crate) fn all(demand: &Demand) -> impl Iterator<Item = Self> + '_ {
        let counts = &demand.remat_counts;
        demand.chunks.iter().flat_map(move |&chunk| counts.iter().map(move |&remat_count| Self { remat_count, chunk }))
    }

    /// Returns the allowed strategy that needs the least memory: most rematerialization, smallest chunk.
    pub(crate) fn smallest(demand: &Demand) -> Self {
        Self {
            remat_count: demand.remat_counts.iter().copied().max().unwrap_or(0),
            chunk: demand.chunks.iter().copied().max_by_key(|chunk| std::cmp::Reverse(chunk_width(*chunk))).flatten(),
        }
    }

    /// Makes the strategy that corresponds to `choice`.
    pub(crate) fn from_choice(choice: Choice, demand: &Demand) -> Self {
        let remat_count = match choice.remat {
            Remat::None => 0,
            Remat::First(blocks) => blocks,
            Remat::Half => demand.blocks / 2,
            Remat::All => demand.blocks,
        };
        Self { remat_count, chunk: choice.attention_chunk }
    }

    /// Makes the execution choice of this strategy, in the precision of `demand`.
    pub(crate) fn choice(self, demand: &Demand) -> Choice {
        let remat = match self.remat_count {
            0 => Remat::None,
            count if count >= demand.blocks => Remat::All,
            count => Remat::First(count),
        };
        Choice { remat, attention_chunk: self.chunk, precision: demand.precision }
    }
}

/// Returns the attention chunk that is tried to save memory. 64 queries are few, and still enough to keep a GPU busy.
pub(crate) fn small_chunk() -> Option<NonZeroU32> {
    NonZeroU32::new(64)
}

/// Returns the number of queries of a chunk; for `None`, which is all queries, a number larger than any chunk.
pub(crate) fn chunk_width(chunk: Option<NonZeroU32>) -> u32 {
    chunk.map_or(u32::MAX, NonZeroU32::get)
}

/// Finds the largest number of utterances of `bucket` whose micro-batch fits into `budget`; `None` if not even one
/// utterance fits. If the demand fixes the size of micro-batches, only this size is tried.
pub(crate) fn most_that_fit<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    strategy: Strategy,
    budget: Bytes,
) -> Result<Option<u32>, TraceError> {
    let fits = |utterances: u32| -> Result<bool, TraceError> {
        Ok(model.estimate(bucket, utterances, strategy.choice(model.demand()))?.peak <= budget)
    };
    if let Some(fixed) = model.demand().micro_batch {
        let fixed = fixed.clamp(1, bucket.utterances);
        return Ok(fits(fixed)?.then_some(fixed));
    }
    if fits(bucket.utterances)? {
        return Ok(Some(bucket.utterances));
    }
    if !fits(1)? {
        return Ok(None);
    }
    let (mut fitting, mut too_many) = (1, bucket.utterances);
    while too_many - fitting > 1 {
        let middle = fitting + (too_many - fitting) / 2;
        if fits(middle)? {
            fitting = middle;
        } else {
            too_many = middle;
        }
    }
    Ok(Some(fitting))
}

/// Finds the fastest micro-batch of at most `most` utterances. Of equally fast micro-batches it takes the largest:
/// fewer shapes occur then.
pub(crate) fn fastest<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    strategy: Strategy,
    most: u32,
    speed: &Speed,
) -> Candidate {
    let cost = |utterances: u32| model.approximate_cost(bucket, utterances, strategy.remat_count, strategy.chunk);
    let least = model.demand().micro_batch.map_or(1, |_| most);
    let candidate = |micro_batch: u32| Candidate {
        strategy,
        micro_batch,
        seconds: step_seconds(bucket.utterances, micro_batch, speed, cost),
    };
    let all = (least..=most).map(candidate);
    // Equal sums that are added in another order differ in their last digits.
    let faster =
        |best: Candidate, next: Candidate| if next.seconds <= best.seconds * (1.0 + 1e-6) { next } else { best };
    all.reduce(faster).expect("at least one utterance")
}

/// Estimates the seconds of a step over `utterances` utterances: full micro-batches of `micro_batch` utterances, and a
/// smaller last one where utterances remain. `cost` gives the cost of a micro-batch from its utterances.
fn step_seconds(utterances: u32, micro_batch: u32, speed: &Speed, cost: impl Fn(u32) -> Cost) -> f64 {
    let full = f64::from(utterances / micro_batch) * speed.seconds(&cost(micro_batch));
    match utterances % micro_batch {
        0 => full,
        rest => full + speed.seconds(&cost(rest)),
    }
}
