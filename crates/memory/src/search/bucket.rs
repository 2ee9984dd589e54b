//! The fastest way to compute the batches of one length, found with as few traces as possible.

use std::cmp::Reverse;
use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Bytes, Choice, Precision, Remat};

use super::{Candidate, EQUAL, LEAST_CHUNK, Search, first_true};
use crate::backend::BackendRules;
use crate::demand::PlanOptions;
use crate::strategy::{chunk_width, micro_batches, smallest_choice, step_seconds};
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// Place of a choice in a [`ChoiceOrder`]: index of the chunk and index of the remat.
pub(super) type Place = (usize, usize);

/// The choices of some options in one precision, in an order in which later ones never take less time.
pub(super) struct ChoiceOrder {
    /// Attention chunks, the widest first.
    pub(super) chunks: Vec<Option<NonZeroU32>>,
    /// Sets of rematerialized blocks, the fewest first.
    pub(super) remat: Vec<Remat>,
    precision: Precision,
}

impl ChoiceOrder {
    pub(super) fn new(options: &PlanOptions, precision: Precision, blocks: u32) -> Self {
        let (mut chunks, mut remat) = (options.chunks.clone(), options.remat.clone());
        chunks.sort_by_key(|&chunk| Reverse(chunk_width(chunk)));
        remat.sort_by_key(|remat| remat.count(blocks));
        Self { chunks, remat, precision }
    }

    pub(super) fn choice(&self, (chunk, remat): Place) -> Choice {
        Choice { attention_chunk: self.chunks[chunk], remat: self.remat[remat], precision: self.precision }
    }
}

impl<S: Traceable + Sync> Search<'_, '_, S> {
    /// Finds the fastest candidate of one bucket; see [`all_buckets`](Self::all_buckets).
    ///
    /// Each trace takes a tenth of a second, so choices are excluded without their traces where possible: smaller chunks
    /// and more rematerialization never take less time, and never allow a smaller micro-batch.
    pub(super) fn fastest(
        &self,
        bucket: BatchShape,
        page: Bytes,
        exact: bool,
    ) -> Result<Option<Candidate>, TraceError> {
        let longest = bucket.frames.0.max(bucket.tokens);
        let mut best = self.most(bucket, self.order.choice((0, 0)), (page, exact), f64::INFINITY)?;
        if best.is_none() && exact && !self.smallest_fits(bucket, page)? {
            return Ok(None);
        }
        let shorter = (1..self.order.chunks.len()).filter(|&chunk| chunk_width(self.order.chunks[chunk]) < longest);
        for chunk in [0].into_iter().chain(shorter) {
            best = self.faster_with_chunk(bucket, chunk, (page, exact), best)?;
        }
        Ok(best)
    }

    /// Returns whether the smallest micro-batch of `bucket`, computed with the least memory, fits with pages of `page` bytes.
    fn smallest_fits(&self, bucket: BatchShape, page: Bytes) -> Result<bool, TraceError> {
        let choice = smallest_choice(self.options, self.precision, self.model.demand().blocks);
        let micro_batch = *micro_batches(self.options, bucket.utterances).last().expect("there is a size");
        self.fits((bucket, micro_batch, choice), page)
    }

    /// Returns the fastest candidate of one bucket with attention chunk number `chunk`, or `best` if none is faster.
    fn faster_with_chunk(
        &self,
        bucket: BatchShape,
        chunk: usize,
        (page, exact): (Bytes, bool),
        mut best: Option<Candidate>,
    ) -> Result<Option<Candidate>, TraceError> {
        let limit = |best: &Option<Candidate>| best.map_or(f64::INFINITY, |best| best.seconds * (1.0 - EQUAL));
        let slower = if chunk == 0 { 1.0 } else { 1.0 + LEAST_CHUNK };
        if limit(&best) <= self.unlimited(bucket, self.order.choice((0, 0)))? * slower {
            return Ok(best);
        }
        let last = self.order.remat.len() - 1;
        let Some(roof) = self.most_by_bound(bucket, self.order.choice((chunk, last)), page)? else { return Ok(best) };
        let least = self.seconds(bucket, roof, (0, 0))? * slower;
        if limit(&best) <= least {
            return Ok(best);
        }
        // The first choice was looked at before.
        let mut waiting: Vec<(usize, u32)> =
            (0..=last).filter(|&remat| (chunk, remat) != (0, 0)).map(|remat| (remat, roof)).collect();
        loop {
            let mut faster = Vec::with_capacity(waiting.len());
            for &(remat, most) in &waiting {
                let hopeful = self.hopeful_sizes(bucket, self.order.choice((chunk, remat)))?;
                let Some(&largest) = hopeful.first() else { continue };
                let seconds = self.seconds(bucket, largest.min(most), (chunk, remat))?;
                if seconds < limit(&best) {
                    faster.push((seconds, remat, most));
                }
            }
            // What may be the fastest comes first: once it is known, the others need not be traced.
            let Some(&(_, remat, _)) = faster.iter().min_by(|one, other| one.0.total_cmp(&other.0)) else {
                return Ok(best);
            };
            waiting = faster.iter().filter(|one| one.1 != remat).map(|one| (one.1, one.2)).collect();
            let choice = self.order.choice((chunk, remat));
            if let Some(candidate) = self.most(bucket, choice, (page, exact), limit(&best))? {
                best = Some(candidate);
            }
            if self.may_be_fast(bucket, choice, limit(&best))? {
                let roof = self.most_by_bound(bucket, choice, page)?;
                waiting.retain_mut(|(less, most)| {
                    if *less < remat {
                        *most = (*most).min(roof.unwrap_or(0));
                    }
                    *most > 0
                });
            }
        }
    }

    /// Estimates the seconds of a step of `bucket` with the choice at `place` and micro-batches of `micro_batch`.
    fn seconds(&self, bucket: BatchShape, micro_batch: u32, place: Place) -> Result<f64, TraceError> {
        step_seconds(self.model, bucket, micro_batch, self.order.choice(place), self.speed)
    }

    /// Returns the sizes of micro-batches of `bucket` that may fit with `choice` by the traces of no and of full
    /// rematerialization, the largest first.
    fn hopeful_sizes(&self, bucket: BatchShape, choice: Choice) -> Result<Vec<u32>, TraceError> {
        let sizes = micro_batches(self.options, bucket.utterances);
        let is_hopeful = |index: usize| -> Result<bool, TraceError> {
            Ok(!self.model.is_hopeless((bucket, sizes[index], choice), self.state, self.limit.budget)?)
        };
        let first = first_true(sizes.len(), is_hopeful)?;
        Ok(sizes[first..].to_vec())
    }

    /// Returns whether a step of `bucket` with `choice` may take less than `limit` seconds, as far as that is known
    /// without a trace of `choice`.
    fn may_be_fast(&self, bucket: BatchShape, choice: Choice, limit: f64) -> Result<bool, TraceError> {
        match self.hopeful_sizes(bucket, choice)?.first() {
            Some(&largest) => Ok(step_seconds(self.model, bucket, largest, choice, self.speed)? < limit),
            None => Ok(false),
        }
    }

    /// Finds the largest micro-batch of `bucket` that fits with `choice` by a lower bound of its memory; `None` if none
    /// does.
    fn most_by_bound(&self, bucket: BatchShape, choice: Choice, page: Bytes) -> Result<Option<u32>, TraceError> {
        let sizes = self.hopeful_sizes(bucket, choice)?;
        let first = first_true(sizes.len(), |index| self.may_hold((bucket, sizes[index], choice), page))?;
        Ok(sizes.get(first).copied())
    }

    /// Returns whether a micro-batch fits by a lower bound of its memory; on the CPU, by its memory.
    fn may_hold(&self, size: (BatchShape, u32, Choice), page: Bytes) -> Result<bool, TraceError> {
        if let Some(limit) = self.options.activations
            && self.model.activations(size)? > limit
        {
            return Ok(false);
        }
        Ok(match self.model.demand().rules {
            BackendRules::Flex { .. } => self.fits(size, Bytes(0))?,
            BackendRules::Cube { .. } => {
                self.model.least(size, self.state)? <= self.limit.budget && self.model.largest(size)? <= page
            }
        })
    }

    /// Finds the largest micro-batch of `bucket` that fits with `choice`, if a step of it takes less than `limit` seconds.
    fn most(
        &self,
        bucket: BatchShape,
        choice: Choice,
        (page, exact): (Bytes, bool),
        limit: f64,
    ) -> Result<Option<Candidate>, TraceError> {
        let is_host = matches!(self.model.demand().rules, BackendRules::Flex { .. });
        if !self.may_be_fast(bucket, choice, limit)? {
            return Ok(None);
        }
        let sizes = self.hopeful_sizes(bucket, choice)?;
        let first = first_true(sizes.len(), |index| self.may_hold((bucket, sizes[index], choice), page))?;
        for &micro_batch in &sizes[first..] {
            let seconds = step_seconds(self.model, bucket, micro_batch, choice, self.speed)?;
            if seconds >= limit {
                return Ok(None);
            }
            let size = (bucket, micro_batch, choice);
            if is_host || !exact || self.fits(size, page)? {
                return Ok(Some(Candidate { choice, micro_batch, seconds }));
            }
        }
        Ok(None)
    }
}
