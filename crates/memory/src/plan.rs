//! The plan of a run: for each length the micro-batch that fits and computes fastest, and the memory of the whole run.

use plimsoll_core::{BatchShape, Bytes, Choice, Precision, Remat};
use serde::Serialize;

use crate::backend::BackendRules;
use crate::cost::Speed;
use crate::model::{MemoryEstimate, MemoryModel};
use crate::plan_error::{PlanError, nothing_fits};
use crate::strategy::{Candidate, Strategy, fastest, most_that_fit};
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// How the batches of one length are computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketPlan {
    /// Batch shape of a whole step.
    pub bucket: BatchShape,
    /// Number of utterances in a micro-batch.
    pub micro_batch: u32,
    /// Number of micro-batches in a step.
    pub accumulation: u32,
    /// How a micro-batch is computed: rematerialization, attention chunk, precision.
    pub choice: Choice,
    /// Peak memory of a run with micro-batches of this size.
    pub peak: Bytes,
    /// Estimated seconds of a step. The cost model is good enough to compare plans, not to predict times.
    pub seconds: f64,
}

/// The plan of a run: how each bucket is computed, and the memory that the run needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Memory that the run may use.
    pub budget: Bytes,
    /// Peak memory over all lengths; at most `budget`.
    pub peak: Bytes,
    /// The largest single allocation of the run. On a GPU the run must preallocate pages of this size (`plimsoll-train`
    /// has a function for it): `peak` holds only then.
    pub largest: Bytes,
    /// Precision of the matrix products of the run.
    pub precision: Precision,
    /// Number of batches that are sent to the device ahead of their step.
    pub prefetch: u32,
    /// Memory of weights, gradients and optimizer state.
    pub fixed: Bytes,
    /// Utterances of the longest bucket that validation computes at once.
    pub validation_batch: u32,
    /// One plan for each bucket, in the order of the demand.
    pub buckets: Vec<BucketPlan>,
}

impl Plan {
    /// Estimates the utterances per second, for one step of each bucket.
    pub fn throughput(&self) -> f64 {
        let utterances: f64 = self.buckets.iter().map(|bucket| f64::from(bucket.bucket.utterances)).sum();
        utterances / self.buckets.iter().map(|bucket| bucket.seconds).sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

/// Finds the fastest plan for the demand of `model` within `budget`, on a device of `speed`.
///
/// The peak of every bucket comes from a trace of that bucket, not from an approximation.
///
/// # Errors
/// [`PlanError::Empty`] without buckets, [`PlanError::NoBudget`] for a budget of zero, [`PlanError::NothingFits`] where
/// one bucket exceeds the budget in every allowed way, and [`PlanError::Trace`] where the model cannot be traced.
pub fn plan<S: Traceable + Sync>(model: &MemoryModel<'_, S>, budget: Bytes, speed: &Speed) -> Result<Plan, PlanError> {
    let demand = model.demand();
    if demand.buckets.is_empty() {
        return Err(PlanError::Empty { what: "there is no batch" });
    }
    if budget.0 == 0 {
        let needed = smallest(model)?.peak;
        return Err(PlanError::NoBudget { budget, needed });
    }
    let mut buckets = Vec::new();
    for &bucket in &demand.buckets {
        buckets.push(bucket_plan(model, bucket, budget, speed)?);
    }
    let largest = fit_shared_pages(model, &mut buckets, budget, speed)?;
    let validation_batch = validation_batch(model, budget)?;
    let peak = buckets.iter().map(|bucket| bucket.peak).max().unwrap_or_default();
    let fixed = model.fixed();
    let (precision, prefetch) = (demand.precision, demand.prefetch);
    Ok(Plan { budget, peak, largest, precision, prefetch, fixed, validation_batch, buckets })
}

/// Finds the fastest plan of one bucket within the budget.
///
/// Memory grows with the utterances, so bisection finds the largest micro-batch of each strategy. A strategy is skipped
/// if it would be slower than the best one even with the whole batch at once.
fn bucket_plan<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    budget: Bytes,
    speed: &Speed,
) -> Result<BucketPlan, PlanError> {
    let demand = model.demand();
    let mut strategies: Vec<(f64, Strategy)> = Strategy::all(demand)
        .map(|strategy| (fastest(model, bucket, strategy, bucket.utterances, speed).seconds, strategy))
        .collect();
    strategies.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<Candidate> = None;
    for (least_seconds, strategy) in strategies {
        if best.is_some_and(|best| best.seconds <= least_seconds) {
            break;
        }
        let Some(most) = most_that_fit(model, bucket, strategy, budget)? else { continue };
        let found = fastest(model, bucket, strategy, most, speed);
        if best.is_none_or(|best| found.seconds < best.seconds) {
            best = Some(found);
        }
    }
    if let Some(Candidate { strategy, micro_batch, seconds }) = best {
        let choice = strategy.choice(demand);
        let estimate = model.estimate(bucket, micro_batch, choice)?;
        let accumulation = bucket.utterances.div_ceil(micro_batch);
        return Ok(BucketPlan { bucket, micro_batch, accumulation, choice, peak: estimate.peak, seconds });
    }
    let smallest = Strategy::smallest(demand);
    let micro_batch = demand.micro_batch.unwrap_or(1).min(bucket.utterances);
    let estimate = model.estimate(bucket, micro_batch, smallest.choice(demand))?;
    Err(nothing_fits(model, bucket, (micro_batch, smallest), estimate.peak, budget)?)
}

/// Makes all buckets fit one GPU memory pool, and returns the largest allocation of any of them.
///
/// The pages of the pool are as large as that allocation, so a long bucket raises the memory of the short buckets.
/// Buckets that no longer fit get smaller micro-batches. The CPU has no such pages, so plans for the CPU are unchanged.
fn fit_shared_pages<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    buckets: &mut [BucketPlan],
    budget: Bytes,
    speed: &Speed,
) -> Result<Bytes, PlanError> {
    let mut largest = Bytes(0);
    for plan in &*buckets {
        largest = largest.max(model.estimate(plan.bucket, plan.micro_batch, plan.choice)?.largest);
    }
    if matches!(model.demand().rules, BackendRules::Flex { .. }) {
        return Ok(largest);
    }
    for plan in buckets {
        plan.peak = model.estimate_with_page(plan.bucket, plan.micro_batch, plan.choice, largest)?.peak;
        while plan.peak > budget {
            let strategy = Strategy::from_choice(plan.choice, model.demand());
            if plan.micro_batch == 1 || model.demand().micro_batch.is_some() {
                return Err(nothing_fits(model, plan.bucket, (plan.micro_batch, strategy), plan.peak, budget)?);
            }
            let Candidate { micro_batch, seconds, .. } =
                fastest(model, plan.bucket, strategy, plan.micro_batch - 1, speed);
            (plan.micro_batch, plan.seconds) = (micro_batch, seconds);
            plan.accumulation = plan.bucket.utterances.div_ceil(micro_batch);
            plan.peak = model.estimate_with_page(plan.bucket, micro_batch, plan.choice, largest)?.peak;
        }
    }
    Ok(largest)
}

/// Estimates one utterance of the longest bucket, computed with the least memory.
fn smallest<S: Traceable + Sync>(model: &MemoryModel<'_, S>) -> Result<MemoryEstimate, TraceError> {
    let demand = model.demand();
    let choice =
        Choice { remat: Remat::All, attention_chunk: crate::strategy::small_chunk(), precision: demand.precision };
    model.estimate(longest(model), 1, choice)
}

/// Finds the largest number of utterances of the longest bucket whose validation fits the budget, at least 1.
fn validation_batch<S: Traceable + Sync>(model: &MemoryModel<'_, S>, budget: Bytes) -> Result<u32, PlanError> {
    let bucket = longest(model);
    let (one, two) = (model.validation(bucket, 1)?, model.validation(bucket, 2)?);
    let each = two.0.saturating_sub(one.0).max(1);
    let base = model.idle();
    let room = budget.0.saturating_sub(base.0 + one.0);
    Ok((1 + room / each).min(u64::from(bucket.utterances)) as u32)
}

fn longest<S: Traceable>(model: &MemoryModel<'_, S>) -> BatchShape {
    let buckets = &model.demand().buckets;
    buckets.iter().copied().max_by_key(|bucket| bucket.frames).expect("plan() refused a demand without buckets")
}
