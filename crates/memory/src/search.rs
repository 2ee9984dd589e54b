//! The search for the fastest way to compute all lengths within a budget.
//!
//! More memory does not refuse a run that a smaller budget allowed: the way with the least memory is tried with pages that do
//! not depend on the budget. And it does not make a run slower, with small exceptions: the sizes of pages that are tried are
//! shares of the budget; an optimizer state that moves must be 2 % faster to be taken; and a bound on the time of more
//! rematerialization is an estimate. A test allows them 2 %.

mod bucket;

use std::cmp::Reverse;

use plimsoll_core::{BatchShape, Bytes, Choice, Precision};

use crate::backend::BackendRules;
use crate::cost::Speed;
use crate::demand::{PlanOptions, StateOption};
use crate::limit::MemoryLimit;
use crate::model::MemoryModel;
use crate::page::{COUNTS, best_page, page_for, shrunk};
use crate::pools::SLACK;
use crate::strategy::{micro_batches, smallest_choice, step_seconds};
use crate::trace::TraceError;
use crate::traceable::Traceable;
use crate::traces::in_parallel;
use bucket::ChoiceOrder;

/// Budget in bytes below which more sizes of pages are tried, since the steps from one page to the next matter there; the
/// smallest of them, and the factor from one to the next.
const SMALL_BUDGET: u64 = 512 << 20;
const SMALLEST_PAGE: f64 = (64_u64 << 10) as f64;
const PAGE_FACTOR: f64 = 1.2;
/// Relative difference below which two times count as equal: sums in another order differ in their last digits.
const EQUAL: f64 = 1e-9;
/// Factor by which a later precision or form of the state has to be faster than an earlier one to be taken.
const WORTHWHILE: f64 = 1.02;
/// Smallest share of a step's time that smaller attention chunks add.
const LEAST_CHUNK: f64 = 0.005;
/// Seconds of latency for each tensor that a step moves between host and device.
const TRANSFER: f64 = 1e-4;

/// The way in which the batches of one length are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// How a micro-batch is computed.
    pub(crate) choice: Choice,
    /// Number of utterances in a micro-batch.
    pub(crate) micro_batch: u32,
    /// Estimated seconds of a whole step, without those of moving the optimizer state.
    pub(crate) seconds: f64,
}

/// A way to compute all lengths that fits the budget.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// One candidate for each bucket, in the order of the demand.
    pub(crate) candidates: Vec<Candidate>,
    /// Precision of the matrix products.
    pub(crate) precision: Precision,
    /// Form of the optimizer state.
    pub(crate) state: StateOption,
    /// Largest allocation that the pages of a GPU must hold.
    pub(crate) page: Bytes,
    /// Estimated seconds of one step of each bucket together.
    pub(crate) seconds: f64,
    /// Utterances of the longest bucket that validation computes at once.
    pub(crate) validation_batch: u32,
}

/// A search with one precision and one form of the optimizer state.
struct Search<'s, 'm, S> {
    model: &'s MemoryModel<'m, S>,
    options: &'s PlanOptions,
    speed: &'s Speed,
    limit: MemoryLimit,
    precision: Precision,
    state: StateOption,
    /// Choices of remat and of attention chunk, the fastest first.
    order: ChoiceOrder,
}

/// Finds the fastest way to compute all buckets of `model` with `options` within `limit`; `None` if none fits.
pub(crate) fn search<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: MemoryLimit,
    speed: &Speed,
) -> Result<Option<Found>, TraceError> {
    let mut best: Option<Found> = None;
    for &precision in &options.precisions {
        for &state in &options.states {
            let search = Search::new(model, options, (limit, speed), (precision, state));
            let limit = best.as_ref().map_or(f64::INFINITY, |best| best.seconds / WORTHWHILE);
            if search.least_seconds()? < limit
                && let Some(found) = search.run()?
                && found.seconds < limit
            {
                best = Some(found);
            }
        }
    }
    Ok(best)
}

/// Returns whether all buckets of `model` fit `limit`, validation included, with the least memory that `options` allow.
pub(crate) fn smallest_fits<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: MemoryLimit,
) -> Result<bool, TraceError> {
    let speed = Speed::uniform(1.0, 1.0);
    for &precision in &options.precisions {
        for &state in &options.states {
            let search = Search::new(model, options, (limit, &speed), (precision, state));
            if let Some((page, candidates)) = search.smallest()?
                && search.with_validation(page, candidates)?.is_some()
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Estimates the seconds of a step of each bucket together, with the fastest of `options` and without a limit on memory.
pub(crate) fn unlimited_seconds<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    speed: &Speed,
) -> Result<f64, TraceError> {
    let mut least = f64::INFINITY;
    for &precision in &options.precisions {
        for &state in &options.states {
            let search = Search::new(model, options, (Bytes(u64::MAX).into(), speed), (precision, state));
            least = least.min(search.least_seconds()?);
        }
    }
    Ok(least)
}

impl<'s, 'm, S: Traceable + Sync> Search<'s, 'm, S> {
    fn new(
        model: &'s MemoryModel<'m, S>,
        options: &'s PlanOptions,
        (limit, speed): (MemoryLimit, &'s Speed),
        (precision, state): (Precision, StateOption),
    ) -> Self {
        let order = ChoiceOrder::new(options, precision, model.demand().blocks);
        Self { model, options, speed, limit, precision, state, order }
    }

    /// Estimates the seconds of one step of each bucket, as if memory had no limit.
    fn least_seconds(&self) -> Result<f64, TraceError> {
        let mut sum = self.state_seconds();
        for &bucket in &self.model.demand().buckets {
            sum += self.unlimited(bucket, self.order.choice((0, 0)))?;
        }
        Ok(sum)
    }

    /// Estimates the seconds of a step of `bucket` with `choice`, as if memory had no limit.
    fn unlimited(&self, bucket: BatchShape, choice: Choice) -> Result<f64, TraceError> {
        let most = micro_batches(self.options, bucket.utterances)[0];
        step_seconds(self.model, bucket, most, choice, self.speed)
    }

    /// Estimates the seconds that one step of each bucket moves the optimizer state.
    fn state_seconds(&self) -> f64 {
        if self.state.moved_bytes == 0 || self.speed.link.is_infinite() {
            return 0.0;
        }
        let moved = (self.model.values() * self.state.moved_bytes) as f64 / self.speed.link;
        (moved + self.model.tensors() as f64 * TRANSFER) * self.model.demand().buckets.len() as f64
    }

    /// Finds the fastest way that fits, over the sizes of pages.
    fn run(&self) -> Result<Option<Found>, TraceError> {
        if !self.may_fit()? {
            return Ok(None);
        }
        let mut pages = self.pages()?;
        let largest = pages.iter().copied().max().unwrap_or(self.limit.budget.min(self.limit.allocation));
        let mut best: Option<(f64, Bytes, Vec<Candidate>)> = None;
        if let Some(bounds) = self.all_buckets(largest, false)? {
            let mut enough = total(&bounds);
            if self.limit.budget.0 >= SMALL_BUDGET {
                if largest < self.limit.allocation {
                    // Nearly always the largest pages lose the least, so what is as fast with smaller ones is fast enough.
                    enough = enough.max(self.all_buckets(largest, true)?.map_or(0.0, |found| total(&found)));
                }
                pages.insert(1.min(pages.len()), page_for(self.largest_of(&bounds)?, self.limit.allocation));
            }
            for page in pages {
                if let Some(found) = self.all_buckets(page, true)? {
                    let seconds = total(&found);
                    if best.as_ref().is_none_or(|(least, ..)| seconds < *least * (1.0 - EQUAL)) {
                        best = Some((seconds, page, found));
                    }
                }
                if best.as_ref().is_some_and(|(seconds, ..)| *seconds <= enough * (1.0 + EQUAL)) {
                    break;
                }
            }
        }
        if let Some((_, page, candidates)) = best
            && let Some(found) = self.with_validation(page, candidates)?
        {
            return Ok(Some(found));
        }
        match self.smallest()? {
            Some((page, candidates)) => self.with_validation(page, candidates),
            None => Ok(None),
        }
    }

    /// Makes the result of the search of `candidates` that fit with pages of `page` bytes; `None` if not even one utterance
    /// can be validated beside them.
    fn with_validation(&self, page: Bytes, candidates: Vec<Candidate>) -> Result<Option<Found>, TraceError> {
        let page = self.tightened(page, &candidates)?;
        let Some(validation_batch) = self.validation_batch(&candidates, page)? else { return Ok(None) };
        let seconds = total(&candidates) + self.state_seconds();
        let (precision, state) = (self.precision, self.state);
        Ok(Some(Found { candidates, precision, state, page, seconds, validation_batch }))
    }

    /// Returns whether each bucket fits by a lower bound of its memory if it is computed with the least memory.
    fn may_fit(&self) -> Result<bool, TraceError> {
        let smallest = smallest_choice(self.options, self.precision, self.model.demand().blocks);
        let fits = |bucket: &BatchShape| -> Result<bool, TraceError> {
            let micro_batch = *micro_batches(self.options, bucket.utterances).last().expect("there is a size");
            // The first choice needs more memory, and is traced already.
            for choice in [self.order.choice((0, 0)), smallest] {
                if self.model.least((*bucket, micro_batch, choice), self.state)? <= self.limit.budget {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let all: Result<Vec<bool>, TraceError> = in_parallel(self.buckets(), fits).into_iter().collect();
        Ok(all?.into_iter().all(|fits| fits))
    }

    /// Lists the sizes of pages to try: shares of the budget. On the CPU there are no pages, and the list has one entry.
    fn pages(&self) -> Result<Vec<Bytes>, TraceError> {
        if matches!(self.model.demand().rules, BackendRules::Flex { .. }) {
            return Ok(vec![Bytes(u64::MAX)]);
        }
        if self.limit.budget.0 < SMALL_BUDGET {
            return Ok(self.small_pages());
        }
        let mut beside = Bytes(0);
        for &bucket in self.buckets() {
            for utterances in [1, micro_batches(self.options, bucket.utterances)[0]] {
                let size = (bucket, utterances, self.order.choice((0, 0)));
                beside = beside.max(self.model.beside_pages(size, self.state)?);
            }
        }
        let room = self.limit.budget.0.saturating_sub(beside.0);
        let of_pages = |count: u64| (room / count / SLACK * SLACK).saturating_sub(SLACK);
        let mut pages: Vec<Bytes> = Vec::new();
        for page in COUNTS.map(|count| Bytes(of_pages(count)).min(self.limit.allocation)) {
            if page.0 > 0 && !pages.contains(&page) {
                pages.push(page);
            }
        }
        Ok(pages)
    }

    /// Lists the sizes of pages to try in a small budget, the largest first. They do not depend on the budget.
    fn small_pages(&self) -> Vec<Bytes> {
        let mut pages = vec![SMALLEST_PAGE];
        while pages[pages.len() - 1] < self.limit.budget.0 as f64 {
            pages.push(pages[pages.len() - 1] * PAGE_FACTOR);
        }
        pages.into_iter().rev().map(|page| Bytes(page as u64).min(self.limit.allocation)).collect()
    }

    fn buckets(&self) -> &[BatchShape] {
        &self.model.demand().buckets
    }

    /// Finds the fastest candidate of every bucket with pages of `page` bytes; `None` if a bucket has none. If `exact`,
    /// they fit the budget by simulation of the pools; otherwise only by a lower bound of their memory.
    fn all_buckets(&self, page: Bytes, exact: bool) -> Result<Option<Vec<Candidate>>, TraceError> {
        let found = in_parallel(self.buckets(), |&bucket| self.fastest(bucket, page, exact));
        found.into_iter().collect()
    }

    /// Returns the candidates that need the least memory, with the page that they need, if they fit.
    fn smallest(&self) -> Result<Option<(Bytes, Vec<Candidate>)>, TraceError> {
        let choice = smallest_choice(self.options, self.precision, self.model.demand().blocks);
        let candidate = |&bucket: &BatchShape| -> Result<(Candidate, Bytes), TraceError> {
            let micro_batch = *micro_batches(self.options, bucket.utterances).last().expect("there is a size");
            let seconds = step_seconds(self.model, bucket, micro_batch, choice, self.speed)?;
            Ok((Candidate { choice, micro_batch, seconds }, self.model.largest((bucket, micro_batch, choice))?))
        };
        let found: Result<Vec<_>, TraceError> = in_parallel(self.buckets(), candidate).into_iter().collect();
        let (all, pages): (Vec<Candidate>, Vec<Bytes>) = found?.into_iter().unzip();
        let largest = pages.into_iter().max().unwrap_or_default();
        if largest > self.limit.allocation {
            return Ok(None);
        }
        let (page, peak) = match self.model.demand().rules {
            BackendRules::Flex { .. } => (largest, self.peak_of(&all, largest, Bytes(u64::MAX))?),
            BackendRules::Cube { .. } => {
                best_page((largest, self.limit.allocation), |page, limit| self.peak_of(&all, page, limit))?
            }
        };
        Ok((peak <= self.limit.budget).then_some((page, all)))
    }

    /// Finds the best pages for `candidates`, which fit with pages of `page` bytes: those of a run in as much memory as it needs,
    /// or in a tight budget the smallest that save memory. Shares of a large budget would be one page for all.
    fn tightened(&self, page: Bytes, candidates: &[Candidate]) -> Result<Bytes, TraceError> {
        let largest = self.largest_of(candidates)?;
        if page.0 == u64::MAX {
            return Ok(largest);
        }
        let peak_of = |page, limit| self.peak_of(candidates, page, limit);
        let (best, peak) = best_page((largest, self.limit.allocation), peak_of)?;
        if peak <= self.limit.budget {
            return Ok(best);
        }
        let least = page_for(largest, self.limit.allocation).min(page);
        let found = shrunk((page, peak_of(page, Bytes(u64::MAX))?), least, peak_of)?;
        Ok(found.0)
    }

    /// Computes the peak memory of all `candidates` with pages of `page` bytes. Stops as soon as it exceeds `limit`, and then
    /// returns a part of it that does.
    fn peak_of(&self, candidates: &[Candidate], page: Bytes, limit: Bytes) -> Result<Bytes, TraceError> {
        let mut sizes = Vec::with_capacity(candidates.len());
        for (&bucket, candidate) in self.buckets().iter().zip(candidates) {
            let size = (bucket, candidate.micro_batch, candidate.choice);
            sizes.push((self.model.least(size, self.state)?, size));
        }
        // What takes the most memory exceeds the limit first.
        sizes.sort_by_key(|&(least, _)| Reverse(least));
        let mut most = Bytes(0);
        for (_, size) in sizes {
            most = most.max(self.model.peak_up_to(size, self.state, page, limit)?);
            if most > limit {
                break;
            }
        }
        Ok(most)
    }

    /// Returns the largest allocation of all `candidates`.
    fn largest_of(&self, candidates: &[Candidate]) -> Result<Bytes, TraceError> {
        let mut largest = Bytes(0);
        for (&bucket, candidate) in self.buckets().iter().zip(candidates) {
            largest = largest.max(self.model.largest((bucket, candidate.micro_batch, candidate.choice))?);
        }
        Ok(largest)
    }

    /// Returns whether a micro-batch of `size` fits the limit with pages of `page` bytes. On the CPU, which has no pages, any
    /// number stands for them.
    fn fits(&self, size: (BatchShape, u32, Choice), page: Bytes) -> Result<bool, TraceError> {
        Ok(self.model.largest(size)? <= self.largest_allocation(page)
            && self.model.fits(size, self.state, page, self.limit.budget)?)
    }

    /// Finds the largest number of utterances of the longest bucket whose validation fits the budget beside `candidates`,
    /// with pages of `page` bytes; `None` if not even one fits. A tensor that is larger than a page of a GPU would make larger pages,
    /// beside those of the steps: as long as fewer utterances avoid that, there are fewer.
    fn validation_batch(&self, candidates: &[Candidate], page: Bytes) -> Result<Option<u32>, TraceError> {
        let (bucket, candidate) = longest(self.buckets(), candidates);
        let size = (bucket, candidate.micro_batch, candidate.choice);
        let sizes = micro_batches(&PlanOptions::new(), bucket.utterances);
        let fits = |index: usize, largest: Bytes| -> Result<bool, TraceError> {
            Ok(self.model.largest_in_validation(bucket, sizes[index])? <= largest
                && self.model.validation(size, sizes[index], self.state, page)? <= self.limit.budget)
        };
        for largest in [self.largest_allocation(page), self.limit.allocation] {
            if let Some(&found) = sizes.get(first_true(sizes.len(), |index| fits(index, largest))?) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns the size of the largest tensor that pages of `page` bytes hold; on the CPU, of any that is possible.
    fn largest_allocation(&self, page: Bytes) -> Bytes {
        match self.model.demand().rules {
            BackendRules::Flex { .. } => self.limit.allocation,
            BackendRules::Cube { .. } => page.min(self.limit.allocation),
        }
    }
}

/// Returns the bucket with the most frames and its candidate. There must be a bucket, and a candidate for each.
pub(crate) fn longest<'c>(buckets: &[BatchShape], candidates: &'c [Candidate]) -> (BatchShape, &'c Candidate) {
    let all = buckets.iter().copied().zip(candidates);
    all.max_by_key(|(bucket, _)| bucket.frames).expect("a demand has buckets")
}

fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| candidate.seconds).sum()
}

/// Finds the first index below `count` for which `is_true` holds, if it holds for all later ones too; `count` if it holds
/// for none.
fn first_true<E>(count: usize, mut is_true: impl FnMut(usize) -> Result<bool, E>) -> Result<usize, E> {
    if count > 0 && is_true(0)? {
        return Ok(0);
    }
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_true(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_true_finds_every_step() {
        for count in 0..9 {
            for step in 0..=count {
                let found: Result<usize, ()> = first_true(count, |index| Ok(index >= step));
                assert_eq!(found, Ok(step));
            }
        }
    }
}
