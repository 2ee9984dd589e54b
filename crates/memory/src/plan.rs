//! The plan of a run: for each length the micro-batch that fits and computes fastest, and the memory of the whole run.

use plimsoll_core::{BatchShape, Bytes, Choice, Precision};
use serde::{Deserialize, Serialize};

use crate::cost::Speed;
use crate::demand::{PlanOptions, StateOption};
use crate::limit::MemoryLimit;
use crate::model::MemoryModel;
use crate::plan_error::PlanError;
use crate::refusal::refusal;
use crate::search::{Found, longest, search, smallest_fits};
use crate::strategy::smallest_choice;
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// How the batches of one length are computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Memory that the run may use.
    pub budget: Bytes,
    /// Peak memory over all lengths and over validation; at most `budget`.
    pub peak: Bytes,
    /// Size of the pages on a GPU, at least that of the largest tensor. The run must preallocate pages of this size
    /// (`plimsoll-train` has a function for it): `peak` holds only then.
    pub page: Bytes,
    /// Precision of the matrix products of the run.
    pub precision: Precision,
    /// Form of the optimizer state.
    pub state: StateOption,
    /// Number of batches that are sent to the device ahead of their step.
    pub prefetch: u32,
    /// Memory of weights, gradients and optimizer state.
    pub fixed: Bytes,
    /// Part of every peak that is memory of the driver and its libraries, and not in the pools of the GPU.
    #[serde(default)]
    pub workspace: Bytes,
    /// Utterances of the longest bucket that validation computes at once.
    pub validation_batch: u32,
    /// Peak memory of validation with that many utterances.
    pub validation_peak: Bytes,
    /// One plan for each bucket, in the order of the demand.
    pub buckets: Vec<BucketPlan>,
}

impl Plan {
    /// Returns the part of `peak`, a peak of this plan, that the pools of a GPU reserve.
    pub fn in_pools(&self, peak: Bytes) -> Bytes {
        peak.saturating_sub(self.workspace)
    }

    /// Estimates the utterances per second, for one step of each bucket.
    pub fn throughput(&self) -> f64 {
        let utterances: f64 = self.buckets.iter().map(|bucket| f64::from(bucket.bucket.utterances)).sum();
        utterances / self.seconds().max(f64::MIN_POSITIVE)
    }

    /// Estimates the seconds of one step of each bucket together.
    pub fn seconds(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.seconds).sum()
    }
}

/// Finds the fastest plan for `model` with the options of its demand within `limit`, on a device of `speed`. A budget
/// is a limit, too.
///
/// The peak of every bucket comes from a trace of that bucket, not from an approximation. More memory never gives a slower
/// plan, and never an error where less memory gives a plan.
///
/// # Errors
/// [`PlanError::Empty`] without buckets, [`PlanError::NoBudget`] for a budget of zero, [`PlanError::NothingFits`] where one
/// bucket exceeds the budget in every allowed way, and [`PlanError::Trace`] where the model cannot be traced.
pub fn plan<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    limit: impl Into<MemoryLimit>,
    speed: &Speed,
) -> Result<Plan, PlanError> {
    plan_with(model, &model.demand().options, limit, speed)
}

/// Finds the fastest plan as [`plan`] does, with `options` in place of those of the demand. Traces are shared between
/// options.
///
/// # Errors
/// As for [`plan`].
pub fn plan_with<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: impl Into<MemoryLimit>,
    speed: &Speed,
) -> Result<Plan, PlanError> {
    let (demand, limit) = (model.demand(), limit.into());
    if demand.buckets.is_empty() {
        return Err(PlanError::Empty { what: "there is no batch" });
    }
    let lists = [options.remat.len(), options.chunks.len(), options.precisions.len(), options.states.len()];
    if lists.contains(&0) {
        return Err(PlanError::Empty { what: "a list of options has no value" });
    }
    if limit.budget.0 == 0 {
        return Err(PlanError::NoBudget { budget: limit.budget, needed: least_possible(model, options)? });
    }
    match fastest_plan(model, options, limit, speed)? {
        Some(plan) => Ok(plan),
        None => Err(refusal(model, options, limit, speed)?),
    }
}

/// Finds the fastest plan with `options`, as [`plan_with`] does; `None` if none fits. Without the search for a remedy, it
/// takes less time to find out that nothing fits. The demand must have buckets, and each list of options a value.
///
/// # Errors
/// [`TraceError`] where the model cannot be traced.
pub fn fastest_plan<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: impl Into<MemoryLimit>,
    speed: &Speed,
) -> Result<Option<Plan>, TraceError> {
    let limit = limit.into();
    search(model, options, limit, speed)?.map(|found| from_search(model, limit.budget, &found)).transpose()
}

/// Returns whether a run fits `limit` if it takes the least memory that `options` allow. That takes less time to find out
/// than a plan. The demand must have buckets, and each list of options a value.
///
/// # Errors
/// [`TraceError`] where the model cannot be traced.
pub fn fits_at_all<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    options: &PlanOptions,
    limit: impl Into<MemoryLimit>,
) -> Result<bool, TraceError> {
    smallest_fits(model, options, limit.into())
}

/// Makes the plan of what the search found.
fn from_search<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    budget: Bytes,
    found: &Found,
) -> Result<Plan, TraceError> {
    let demand = model.demand();
    let count = demand.buckets.len().max(1) as f64;
    // Moving the optimizer state takes as long at every length.
    let of_steps: f64 = found.candidates.iter().map(|candidate| candidate.seconds).sum();
    let moving = (found.seconds - of_steps).max(0.0) / count;
    let mut buckets = Vec::new();
    for (&bucket, candidate) in demand.buckets.iter().zip(&found.candidates) {
        let (micro_batch, choice) = (candidate.micro_batch, candidate.choice);
        buckets.push(BucketPlan {
            bucket,
            micro_batch,
            accumulation: bucket.utterances.div_ceil(micro_batch),
            choice,
            peak: model.peak((bucket, micro_batch, choice), found.state, found.page)?,
            seconds: candidate.seconds + moving,
        });
    }
    let validation_batch = found.validation_batch;
    let (bucket, candidate) = longest(&demand.buckets, &found.candidates);
    let size = (bucket, candidate.micro_batch, candidate.choice);
    let validation_peak = model.validation(size, validation_batch, found.state, found.page)?;
    let peak = buckets.iter().map(|bucket| bucket.peak).max().unwrap_or_default().max(validation_peak);
    Ok(Plan {
        budget,
        peak,
        page: found.page,
        precision: found.precision,
        state: found.state,
        prefetch: demand.prefetch,
        fixed: model.fixed(found.state),
        workspace: demand.step.workspace,
        validation_batch,
        validation_peak,
        buckets,
    })
}

/// Estimates one utterance of the longest bucket, computed with the least memory that `options` and the remedies of the
/// demand allow.
fn least_possible<S: Traceable + Sync>(model: &MemoryModel<'_, S>, options: &PlanOptions) -> Result<Bytes, TraceError> {
    let demand = model.demand();
    let all = options.joined(&demand.remedies);
    let choice = smallest_choice(&all, options.precisions[0], demand.blocks);
    let state = all.states.iter().copied().min_by_key(|state| state.bits).unwrap_or(StateOption::FULL);
    let longest = demand.buckets.iter().copied().max_by_key(|bucket| bucket.frames).expect("a demand has buckets");
    Ok(model.alone((longest, 1, choice), state)?.1)
}
