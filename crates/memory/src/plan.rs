//! The plan: for each length the piece that fits and computes fastest, and what the whole run needs.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Bytes, Choice, Precision, Remat};
use serde::Serialize;

use crate::backend::BackendRules;
use crate::cost::{Cost, Speed};
use crate::demand::Demand;
use crate::model::{MemoryEstimate, MemoryModel};
use crate::run_memory::StepMemory;
use crate::trace::TraceError;
use crate::traceable::Traceable;

/// How the batches of one length are computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketPlan {
    /// The batch of a step.
    pub bucket: BatchShape,
    /// Utterances of a piece.
    pub micro_batch: u32,
    /// Pieces of a step.
    pub accumulation: u32,
    /// How a piece is computed.
    pub choice: Choice,
    /// The most that is in memory at once.
    pub peak: Bytes,
    /// Seconds that a step takes, by the cost model: good for comparing plans, not for promising times.
    pub seconds: f64,
}

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What may be used.
    pub budget: Bytes,
    /// The most that is.
    pub peak: Bytes,
    /// The largest thing that is made. On a card, a run is to lay its pages out for it, which
    /// `plimsoll_train::lay_out` does: the peak counts on that.
    pub largest: Bytes,
    /// Numbers to compute in.
    pub precision: Precision,
    /// Batches that wait on the device.
    pub prefetch: u32,
    /// Weights, gradients and optimizer state.
    pub fixed: Bytes,
    /// Utterances that are validated at once.
    pub validation_batch: u32,
    /// Each length, in the order of the demand.
    pub buckets: Vec<BucketPlan>,
}

impl Plan {
    /// Utterances a second over all buckets, one step of each.
    pub fn throughput(&self) -> f64 {
        let utterances: f64 = self.buckets.iter().map(|bucket| f64::from(bucket.bucket.utterances)).sum();
        utterances / self.buckets.iter().map(|bucket| bucket.seconds).sum::<f64>().max(f64::MIN_POSITIVE)
    }
}

/// The change that would make a run fit which does not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Change {
    /// Smaller pieces.
    MicroBatch {
        /// Utterances of a piece.
        utterances: u32,
    },
    /// Every block computed a second time.
    #[serde(rename = "rematerialise")]
    Rematerialize,
    /// Attention a chunk of queries at a time.
    Chunk {
        /// Queries of a chunk.
        queries: u32,
    },
    /// Matrix products in 16 bits.
    Precision {
        /// Which.
        precision: Precision,
    },
    /// The optimizer's state in 8 bits.
    #[serde(rename = "lean_optimizer")]
    EightBitOptimizer,
    /// Fewer parameters.
    SmallerModel {
        /// The share of them that would be left.
        share: f64,
    },
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::MicroBatch { utterances } => write!(f, "compute {utterances} utterances at once"),
            Self::Rematerialize => f.write_str("compute every block a second time in the backward pass"),
            Self::Chunk { queries } => write!(f, "compute attention {queries} queries at a time"),
            Self::Precision { precision } => {
                let name = if *precision == Precision::Bf16 { "bf16" } else { "fp16" };
                write!(f, "compute matrix products in {name}")
            }
            Self::EightBitOptimizer => f.write_str("keep the optimizer's state in 8 bits"),
            Self::SmallerModel { share } => {
                write!(f, "take a model of at most {:.0} % of the parameters", share * 100.0)
            }
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Nothing was to be planned.
    #[error("there is nothing to plan: {what}")]
    Empty {
        /// What is missing.
        what: &'static str,
    },
    /// The budget holds nothing.
    #[error("a budget of {budget} holds nothing: the smallest plan needs {needed}")]
    NoBudget {
        /// What may be used.
        budget: Bytes,
        /// What the smallest plan needs.
        needed: Bytes,
    },
    /// The smallest plan within the demand needs more than there is.
    #[error("{} x {} frames needs {needed}, {missing} more than the {budget} there are", bucket.utterances, bucket.frames.0)]
    NothingFits {
        /// The piece that does not fit.
        bucket: BatchShape,
        /// What it needs.
        needed: Bytes,
        /// What may be used.
        budget: Bytes,
        /// The difference.
        missing: Bytes,
        /// The cheapest change that would make it fit, if one would.
        change: Option<Change>,
    },
    /// The model could not be traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// One strategy to compute a bucket.
#[derive(Clone, Copy, Debug)]
struct Strategy {
    remat_count: u32,
    chunk: Option<NonZeroU32>,
}

/// A strategy with its pieces.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    strategy: Strategy,
    micro_batch: u32,
    seconds: f64,
}

/// Plans `demand` within `budget` on a device as fast as `speed`.
///
/// Every bucket of the plan has been traced as it stands, and needs no more than the budget by that trace.
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
    let largest = fit_largest_page(model, &mut buckets, budget, speed)?;
    let validation_batch = validation_batch(model, budget)?;
    let peak = buckets.iter().map(|bucket| bucket.peak).max().unwrap_or_default();
    let fixed = model.fixed();
    let (precision, prefetch) = (demand.precision, demand.prefetch);
    Ok(Plan { budget, peak, largest, precision, prefetch, fixed, validation_batch, buckets })
}

/// Fits the lengths beside each other, as one run has them all: a card's pages are as large as the largest thing of any
/// length. Gives that.
fn fit_largest_page<S: Traceable + Sync>(
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
            let strategy = Strategy {
                remat_count: remat_count(model.demand(), plan.choice.remat),
                chunk: plan.choice.attention_chunk,
            };
            if plan.micro_batch == 1 || model.demand().micro_batch.is_some() {
                return Err(misfit(model, plan.bucket, (plan.micro_batch, strategy), plan.peak, budget)?);
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

/// How many blocks are computed a second time.
fn remat_count(demand: &Demand, remat: Remat) -> u32 {
    match remat {
        Remat::None => 0,
        Remat::First(blocks) => blocks,
        Remat::Half => demand.blocks / 2,
        Remat::All => demand.blocks,
    }
}

/// The fastest strategy within the budget. More utterances never need less memory, so for each strategy the most that fit are found
/// by halving; strategies that could not be faster with all utterances at once are not looked at.
fn bucket_plan<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    budget: Bytes,
    speed: &Speed,
) -> Result<BucketPlan, PlanError> {
    let demand = model.demand();
    let mut strategies: Vec<(f64, Strategy)> = Vec::new();
    for &chunk in &demand.chunks {
        for &remat_count in &demand.remat_counts {
            let strategy = Strategy { remat_count, chunk };
            strategies.push((fastest(model, bucket, strategy, bucket.utterances, speed).seconds, strategy));
        }
    }
    strategies.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<Candidate> = None;
    for (hoped, strategy) in strategies {
        if best.is_some_and(|best| best.seconds <= hoped) {
            break;
        }
        let Some(most) = most_that_fit(model, bucket, strategy, budget)? else { continue };
        let found = fastest(model, bucket, strategy, most, speed);
        if best.is_none_or(|best| found.seconds < best.seconds) {
            best = Some(found);
        }
    }
    if let Some(Candidate { strategy, micro_batch, seconds }) = best {
        let choice = choice(demand, strategy);
        let estimate = model.estimate(bucket, micro_batch, choice)?;
        let accumulation = bucket.utterances.div_ceil(micro_batch);
        return Ok(BucketPlan { bucket, micro_batch, accumulation, choice, peak: estimate.peak, seconds });
    }
    let least = Strategy {
        remat_count: demand.remat_counts.iter().copied().max().unwrap_or(0),
        chunk: demand.chunks.iter().copied().max_by_key(|chunk| std::cmp::Reverse(width(*chunk))).flatten(),
    };
    let micro_batch = demand.micro_batch.unwrap_or(1).min(bucket.utterances);
    let estimate = model.estimate(bucket, micro_batch, choice(demand, least))?;
    Err(misfit(model, bucket, (micro_batch, least), estimate.peak, budget)?)
}

/// The most utterances at once that fit, if one does.
fn most_that_fit<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    strategy: Strategy,
    budget: Bytes,
) -> Result<Option<u32>, TraceError> {
    let fits = |utterances: u32| -> Result<bool, TraceError> {
        Ok(model.estimate(bucket, utterances, choice(model.demand(), strategy))?.peak <= budget)
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

/// The fastest pieces of at most `most` utterances; of equals the largest, as their shapes change least.
fn fastest<S: Traceable + Sync>(
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
    // Sums of the same pieces in another order differ in their last digits.
    let faster =
        |best: Candidate, next: Candidate| if next.seconds <= best.seconds * (1.0 + 1e-6) { next } else { best };
    all.reduce(faster).expect("at least one utterance")
}

fn width(chunk: Option<NonZeroU32>) -> u32 {
    chunk.map_or(u32::MAX, NonZeroU32::get)
}

/// A step of so many utterances: whole pieces, and one with what is left.
fn step_seconds(utterances: u32, micro_batch: u32, speed: &Speed, cost: impl Fn(u32) -> Cost) -> f64 {
    let whole = f64::from(utterances / micro_batch) * speed.seconds(&cost(micro_batch));
    match utterances % micro_batch {
        0 => whole,
        rest => whole + speed.seconds(&cost(rest)),
    }
}

fn choice(demand: &Demand, strategy: Strategy) -> Choice {
    let remat = match strategy.remat_count {
        0 => Remat::None,
        passes if passes >= demand.blocks => Remat::All,
        passes => Remat::First(passes),
    };
    Choice { remat, attention_chunk: strategy.chunk, precision: demand.precision }
}

/// The smallest plan of the largest bucket.
fn smallest<S: Traceable + Sync>(model: &MemoryModel<'_, S>) -> Result<MemoryEstimate, TraceError> {
    let demand = model.demand();
    let bucket = demand.buckets.iter().copied().max_by_key(|bucket| bucket.frames).expect("there is a batch");
    model.estimate(bucket, 1, Choice { remat: Remat::All, attention_chunk: chunk(), precision: demand.precision })
}

/// A chunk that is small, and still large enough to keep a card busy.
fn chunk() -> Option<NonZeroU32> {
    NonZeroU32::new(64)
}

/// Says what is missing, and the cheapest change that would do, in the order of what it costs.
fn misfit<S: Traceable + Sync>(
    model: &MemoryModel<'_, S>,
    bucket: BatchShape,
    (mut utterances, least): (u32, Strategy),
    needed: Bytes,
    budget: Bytes,
) -> Result<PlanError, TraceError> {
    let demand = model.demand();
    let missing = Bytes(needed.0 - budget.0);
    let piece = bucket.with_utterances(utterances);
    let refused = |change| PlanError::NothingFits { bucket: piece, needed, budget, missing, change };
    let mut best = choice(demand, least);
    let fits = |utterances: u32, choice: Choice| -> Result<bool, TraceError> {
        Ok(model.estimate(bucket, utterances, choice)?.peak <= budget)
    };
    if utterances > 1 {
        let fitting = (1..utterances).rev().map(|n| fits(n, best).map(|fits| fits.then_some(n)));
        for found in fitting {
            if let Some(n) = found? {
                return Ok(refused(Some(Change::MicroBatch { utterances: n })));
            }
        }
        utterances = 1;
    }
    best.remat = Remat::All;
    if fits(utterances, best)? {
        return Ok(refused(Some(Change::Rematerialize)));
    }
    if let Some(small) = chunk().filter(|small| width(best.attention_chunk) > small.get()) {
        best.attention_chunk = Some(small);
        if fits(utterances, best)? {
            return Ok(refused(Some(Change::Chunk { queries: small.get() })));
        }
    }
    if demand.precision == Precision::Fp32 && matches!(demand.rules, BackendRules::Cube { .. }) {
        let low = Choice { precision: Precision::Bf16, ..best };
        // Not every model can be computed in other numbers; one that cannot is no help.
        match fits(utterances, low) {
            Ok(true) => return Ok(refused(Some(Change::Precision { precision: Precision::Bf16 }))),
            Ok(false) => best = low,
            Err(_) => {}
        }
    }
    let estimate = model.estimate(bucket, utterances, best)?;
    let lean = StepMemory { state_bits: demand.eight_bit_state_bits.min(demand.step.state_bits), ..demand.step };
    let saved = demand.step.state_of(model.values()).0 - lean.state_of(model.values()).0;
    if saved > 0 && estimate.peak.0.saturating_sub(saved) <= budget.0 {
        return Ok(refused(Some(Change::EightBitOptimizer)));
    }
    // Activations shrink with the width, too: the share of all is a share that fits.
    let share = budget.0 as f64 / estimate.peak.0 as f64;
    Ok(refused((share > 0.01).then_some(Change::SmallerModel { share })))
}

/// The most utterances of the longest bucket that are validated at once within the budget.
fn validation_batch<S: Traceable + Sync>(model: &MemoryModel<'_, S>, budget: Bytes) -> Result<u32, PlanError> {
    let demand = model.demand();
    let bucket = demand.buckets.iter().copied().max_by_key(|bucket| bucket.frames).expect("there is a batch");
    let (one, two) = (model.validation(bucket, 1)?, model.validation(bucket, 2)?);
    let each = two.0.saturating_sub(one.0).max(1);
    let base = model.idle();
    let room = budget.0.saturating_sub(base.0 + one.0);
    Ok((1 + room / each).min(u64::from(bucket.utterances)) as u32)
}
