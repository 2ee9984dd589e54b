//! Queue of a step's micro-batches: splits the batch, takes one micro-batch for each lane (thread), retries failures.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use plimsoll_core::{Batch, BatchShape, Choice, MicroBatch, Remat};

use crate::Governor;

/// Splits `micro_batch` after its first `at` utterances.
fn split(micro_batch: MicroBatch, at: u32) -> (MicroBatch, MicroBatch) {
    let MicroBatch { start, len, .. } = micro_batch;
    (MicroBatch { len: at, ..micro_batch }, MicroBatch { start: start + at, len: len - at, ..micro_batch })
}

/// Least number of attempts for a single utterance before the utterance is left out.
const TRIES: u32 = 8;
/// Numbers of queries per attention chunk at the two highest fallback levels.
const CHUNKS: [u32; 2] = [64, 16];

/// Returns the execution choices for an utterance that does not fit alone, starting with `choice` itself. Each choice
/// needs less memory and more time than the choice before. All choices give the same result up to rounding.
pub fn fallbacks(choice: Choice) -> Vec<Choice> {
    let mut fallbacks = vec![choice, Choice { remat: Remat::All, ..choice }];
    for queries in CHUNKS {
        let chunk = choice.attention_chunk.map_or(queries, |chunk| chunk.get().min(queries));
        fallbacks.push(Choice { remat: Remat::All, attention_chunk: NonZeroU32::new(chunk), ..choice });
    }
    fallbacks.dedup();
    fallbacks
}

/// Micro-batches that are computed at the same time, one on each thread.
pub(super) struct MicroBatchGroup {
    pub(super) micro_batches: Vec<MicroBatch>,
    /// Shape of all utterances of the group, padded to the longest.
    pub(super) shape: BatchShape,
}

/// Micro-batches of a step that are still to be computed.
pub(super) struct Queue {
    waiting: VecDeque<MicroBatch>,
    /// Whether the micro-batches come from a ledger and must stay as they are.
    is_given: bool,
    /// Index in the batch of the last utterance that did not fit into memory alone, and its number of failed attempts.
    /// The index is `u32::MAX` when there is no such utterance.
    alone: (u32, u32),
}

impl Queue {
    /// Makes a queue of the whole batch, or of the micro-batches of a ledger.
    pub(super) fn new(batch: &impl Batch, micro_batches: Option<&[MicroBatch]>) -> Self {
        let whole = [MicroBatch { start: 0, len: batch.len() as u32, fallback_level: 0 }];
        let is_given = micro_batches.is_some();
        let waiting =
            micro_batches.unwrap_or(&whole).iter().copied().filter(|micro_batch| micro_batch.len > 0).collect();
        Self { waiting, is_given, alone: (u32::MAX, 0) }
    }

    /// Returns whether no micro-batch is left.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the next group from the queue: as many utterances as the governor allows at once, in at most `lanes`
    /// micro-batches, one for each lane. `None` if the queue is empty.
    pub(super) fn next_group(
        &mut self,
        batch: &impl Batch,
        governor: &Governor,
        lanes: usize,
    ) -> Option<MicroBatchGroup> {
        if self.waiting.is_empty() {
            return None;
        }
        // With the longest utterance of the batch, so that a failure of one micro-batch lowers the limit for the next.
        let allowed = governor.limit(batch.shape());
        let limit = allowed.min(batch.len());
        let lanes = lanes.clamp(1, limit);
        // Where the limit holds back, each lane was planned with its share of it, rounded down.
        let most = if allowed < batch.len() { (limit / lanes).max(1) as u32 } else { u32::MAX };
        let waiting: u32 = self.waiting.iter().map(|micro_batch| micro_batch.len).sum();
        let mut left = waiting.min(limit as u32);
        let mut micro_batches = Vec::new();
        while micro_batches.len() < lanes
            && (left > 0 || self.is_given)
            && let Some(mut micro_batch) = self.waiting.pop_front()
        {
            // A left-out entry of a ledger forms its own group.
            if micro_batch.fallback_level == MicroBatch::LEFT_OUT {
                match micro_batches.is_empty() {
                    true => micro_batches.push(micro_batch),
                    false => self.waiting.push_front(micro_batch),
                }
                break;
            }
            // Lanes whose numbers differ by one at most: nine utterances on two lanes are five and four.
            let each = left.div_ceil((lanes - micro_batches.len()) as u32).min(most);
            if !self.is_given && micro_batch.len > each {
                let (head, rest) = split(micro_batch, each);
                self.waiting.push_front(rest);
                micro_batch = head;
            }
            if !self.is_given {
                micro_batch.fallback_level =
                    micro_batch.fallback_level.max(governor.fallback_level(batch.shape_of(micro_batch.range())) as u32);
            }
            left = left.saturating_sub(micro_batch.len);
            micro_batches.push(micro_batch);
        }
        Some(MicroBatchGroup { shape: shape_of_all(batch, &micro_batches), micro_batches })
    }

    /// Queues failed micro-batches again, split or at a higher fallback level, and informs the governor. Returns the
    /// micro-batches that cannot be retried.
    pub(super) fn requeue_failed(
        &mut self,
        failed: &[MicroBatch],
        group: &MicroBatchGroup,
        governor: &mut Governor,
    ) -> Vec<MicroBatch> {
        let mut given_up = Vec::new();
        let was_alone = group.micro_batches.len() == 1 && group.shape.utterances == 1;
        if !was_alone {
            governor.record_out_of_memory(group.shape);
        }
        for &micro_batch in failed.iter().rev() {
            if micro_batch.len > 1 {
                let (head, rest) = split(micro_batch, micro_batch.len.div_ceil(2));
                self.waiting.push_front(rest);
                self.waiting.push_front(head);
            } else if was_alone {
                match self.next_try(micro_batch, group, governor) {
                    Some(micro_batch) => self.waiting.push_front(micro_batch),
                    None => given_up.push(MicroBatch { fallback_level: MicroBatch::LEFT_OUT, ..micro_batch }),
                }
            } else {
                self.waiting.push_front(micro_batch);
            }
        }
        given_up
    }

    /// Returns the next attempt for a single utterance: first unchanged, because another process may have held the
    /// memory; then at rising fallback levels; then several times at the highest level. `None` after the last attempt.
    fn next_try(
        &mut self,
        micro_batch: MicroBatch,
        group: &MicroBatchGroup,
        governor: &mut Governor,
    ) -> Option<MicroBatch> {
        let tries = if self.alone.0 == micro_batch.start { self.alone.1 + 1 } else { 1 };
        self.alone = (micro_batch.start, tries);
        let last = fallbacks(Choice::default()).len() as u32 - 1;
        match tries {
            1 => Some(micro_batch),
            _ if micro_batch.fallback_level < last => Some(MicroBatch {
                fallback_level: (governor.raise_fallback_level(group.shape) as u32)
                    .clamp(micro_batch.fallback_level + 1, last),
                ..micro_batch
            }),
            ..=TRIES => Some(micro_batch),
            _ => None,
        }
    }

    /// Queues a micro-batch again at the highest fallback level, and resets the count of its failed attempts.
    pub(super) fn retry_with_all_fallbacks(&mut self, micro_batch: MicroBatch) {
        self.alone = (u32::MAX, 0);
        self.waiting
            .push_front(MicroBatch { fallback_level: fallbacks(Choice::default()).len() as u32 - 1, ..micro_batch });
    }
}

/// Computes the shape of all micro-batches together: the sum of their utterances, and the most frames and tokens.
fn shape_of_all(batch: &impl Batch, micro_batches: &[MicroBatch]) -> BatchShape {
    let shapes: Vec<BatchShape> = micro_batches.iter().map(|micro_batch| batch.shape_of(micro_batch.range())).collect();
    BatchShape {
        utterances: shapes.iter().map(|shape| shape.utterances).sum(),
        frames: shapes.iter().map(|shape| shape.frames).max().unwrap_or_default(),
        tokens: shapes.iter().map(|shape| shape.tokens).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{Grid, HostBatch, HostSample, SampleId};

    use super::*;

    /// Every utterance is computed once. A limit that does not hold back gives each lane as many as the others, or one more;
    /// one that does gives each at most its share, for which its memory was planned.
    #[test]
    fn lanes_share_a_batch_evenly_within_the_limit() {
        for (count, limit, lanes) in (1..=13)
            .flat_map(|count| (1..=16).map(move |limit| (count, limit)))
            .flat_map(|(count, limit)| (1..=4).map(move |lanes| (count, limit, lanes)))
        {
            let sample = |index: usize| HostSample {
                id: SampleId(index as u64),
                name: index.to_string(),
                features: vec![0.0; 4],
                tokens: vec![1],
                reference: Vec::new(),
            };
            let samples: Vec<_> = (0..count).map(sample).collect();
            let batch = HostBatch::collate(&samples, 2, &Grid::default()).unwrap();
            let (mut queue, governor) = (Queue::new(&batch, None), Governor::new(limit));
            let mut next = 0;
            while let Some(group) = queue.next_group(&batch, &governor, lanes) {
                let sizes: Vec<usize> =
                    group.micro_batches.iter().map(|micro_batch| micro_batch.len as usize).collect();
                for micro_batch in &group.micro_batches {
                    assert_eq!(micro_batch.start as usize, next);
                    next += micro_batch.len as usize;
                }
                let (most, least) = (sizes.iter().max().unwrap(), sizes.iter().min().unwrap());
                let case = format!("{count} utterances, limit {limit}, {lanes} lanes: {sizes:?}");
                assert!(sizes.len() <= lanes && sizes.iter().sum::<usize>() <= limit && *least > 0, "{case}");
                match limit >= count {
                    true => assert!(most - least <= 1 && sizes.iter().sum::<usize>() == count, "{case}"),
                    false => assert!(*most <= (limit / lanes.min(limit)).max(1), "{case}"),
                }
            }
            assert_eq!(next, count);
        }
    }
}
