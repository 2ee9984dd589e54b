//! The strategies for one bucket, the sizes of micro-batches that are tried, and the estimated time of a step.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Choice, Precision, Remat};

use crate::cost::Speed;
use crate::demand::PlanOptions;
use crate::model::MemoryModel;
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// Returns the allowed choice that needs the least memory: most rematerialization, smallest chunk.
pub(crate) fn smallest_choice(options: &PlanOptions, precision: Precision, blocks: u32) -> Choice {
    Choice {
        remat: options.remat.iter().copied().max_by_key(|remat| remat.count(blocks)).unwrap_or(Remat::None),
        attention_chunk: options.chunks.iter().copied().min_by_key(|&chunk| chunk_width(chunk)).flatten(),
        precision,
    }
}

/// Returns the number of queries of a chunk; for no chunk, a number larger than any chunk.
pub(crate) fn chunk_width(chunk: Option<NonZeroU32>) -> u32 {
    chunk.map_or(u32::MAX, NonZeroU32::get)
}

/// Lists the sizes of micro-batches that are tried for a batch of `whole` utterances, the largest first: every size up to
/// 32, above that in steps of about 4 %, and the whole batch. The list does not depend on a budget, so that more memory
/// never takes a size away.
pub(crate) fn micro_batches(options: &PlanOptions, whole: u32) -> Vec<u32> {
    if let Some(fixed) = options.micro_batch {
        return vec![fixed.clamp(1, whole.max(1))];
    }
    let mut sizes = vec![whole.max(1)];
    let mut next = 1;
    while next < whole {
        sizes.push(next);
        next += (next / 25).max(1);
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

/// Estimates the seconds of a step of `bucket`: full micro-batches of `micro_batch` utterances, and a smaller last one
/// where utterances remain. As costs grow linearly with the utterances, the time depends on the number of micro-batches
/// alone, which is computed so that equal numbers give equal times to the last bit.
pub(crate) fn step_seconds<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    micro_batch: u32,
    choice: Choice,
    speed: &Speed,
) -> Result<f64, TraceError> {
    let seconds = |utterances: u32| -> Result<f64, TraceError> {
        Ok(speed.seconds(&model.approximate_cost(bucket, utterances, choice)?, choice.precision))
    };
    let (none, whole) = (seconds(0)?, seconds(bucket.utterances)?);
    let more = f64::from(bucket.utterances.div_ceil(micro_batch.max(1)) - 1);
    // A micro-batch never costs nothing, whatever the extrapolation to no utterances says.
    Ok(whole + more * none.max(0.0))
}
