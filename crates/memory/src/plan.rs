//! The plan: for each length the piece that fits and computes fastest, and what the whole run needs.

use std::num::NonZeroU32;

use plimsoll_core::{BatchShape, Bytes, Choice, Precision, Remat};
use serde::Serialize;

use crate::backend::BackendRules;
use crate::cost::{Cost, Speed};
use crate::life::StepMemory;
use crate::subject::Subject;
use crate::survey::{Survey, Weighed};
use crate::trace::{TraceError, batch_bytes};

/// What a run wants, whatever the card.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The batches of a step, one for each length: the shape says how many utterances a step has, and how long they are.
    pub buckets: Vec<BatchShape>,
    /// How many blocks the model can compute a second time.
    pub blocks: u32,
    /// How many of them may be; the fastest number of these is taken.
    pub second_passes: Vec<u32>,
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
    pub lean_bits: u64,
}

impl Demand {
    /// A run of steps of `buckets` in fp32 with AdamW, one batch ahead, of a model that computes nothing a second time.
    pub fn new(buckets: Vec<BatchShape>, rules: BackendRules) -> Self {
        Self {
            buckets,
            blocks: 0,
            second_passes: vec![0],
            chunks: vec![None],
            precision: Precision::Fp32,
            micro_batch: None,
            rules,
            step: StepMemory::default(),
            prefetch: 1,
            lean_bits: 17,
        }
    }

    /// Every number of second passes from none to all of `blocks`, in at most nine steps.
    pub fn all_second_passes(blocks: u32) -> Vec<u32> {
        let mut passes: Vec<u32> = (0..=8).map(|eighths| blocks * eighths / 8).collect();
        passes.dedup();
        passes
    }

    /// The same demand of a model of `blocks` blocks, of which any number may be computed a second time.
    #[must_use]
    pub fn with_blocks(self, blocks: u32) -> Self {
        Self { blocks, second_passes: Self::all_second_passes(blocks), ..self }
    }
}

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
    /// `plimsoll_train::preallocate_pages` does: the peak counts on that.
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
    Rematerialise,
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
    LeanOptimizer,
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
            Self::Rematerialise => f.write_str("compute every block a second time in the backward pass"),
            Self::Chunk { queries } => write!(f, "compute attention {queries} queries at a time"),
            Self::Precision { precision } => {
                let name = if *precision == Precision::Bf16 { "bf16" } else { "fp16" };
                write!(f, "compute matrix products in {name}")
            }
            Self::LeanOptimizer => f.write_str("keep the optimizer's state in 8 bits"),
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

/// One way to compute a bucket.
#[derive(Clone, Copy, Debug)]
struct Way {
    second_passes: u32,
    chunk: Option<NonZeroU32>,
}

/// A way with its pieces.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    way: Way,
    micro_batch: u32,
    seconds: f64,
}

/// Plans `demand` within `budget` on a device as fast as `speed`.
///
/// Every bucket of the plan has been traced as it stands, and needs no more than the budget by that trace.
pub fn plan<S: Subject + Sync>(survey: &Survey<'_, S>, budget: Bytes, speed: &Speed) -> Result<Plan, PlanError> {
    let demand = survey.demand();
    if demand.buckets.is_empty() {
        return Err(PlanError::Empty { what: "there is no batch" });
    }
    if budget.0 == 0 {
        let needed = smallest(survey)?.peak;
        return Err(PlanError::NoBudget { budget, needed });
    }
    let mut buckets = Vec::new();
    for &bucket in &demand.buckets {
        buckets.push(bucket_plan(survey, bucket, budget, speed)?);
    }
    let largest = together(survey, &mut buckets, budget, speed)?;
    let validation_batch = validation_batch(survey, budget)?;
    let peak = buckets.iter().map(|bucket| bucket.peak).max().unwrap_or_default();
    let fixed = survey.fixed();
    let (precision, prefetch) = (demand.precision, demand.prefetch);
    Ok(Plan { budget, peak, largest, precision, prefetch, fixed, validation_batch, buckets })
}

/// Fits the lengths beside each other, as one run has them all: a card's pages are as large as the largest thing of any
/// length. Gives that.
fn together<S: Subject + Sync>(
    survey: &Survey<'_, S>,
    buckets: &mut [BucketPlan],
    budget: Bytes,
    speed: &Speed,
) -> Result<Bytes, PlanError> {
    let mut largest = Bytes(0);
    for plan in &*buckets {
        largest = largest.max(survey.weigh(plan.bucket, plan.micro_batch, plan.choice)?.largest);
    }
    if matches!(survey.demand().rules, BackendRules::Flex { .. }) {
        return Ok(largest);
    }
    for plan in buckets {
        plan.peak = survey.weigh_beside(plan.bucket, plan.micro_batch, plan.choice, largest)?.peak;
        while plan.peak > budget {
            let way =
                Way { second_passes: passes(survey.demand(), plan.choice.remat), chunk: plan.choice.attention_chunk };
            if plan.micro_batch == 1 || survey.demand().micro_batch.is_some() {
                return Err(refusal(survey, plan.bucket, (plan.micro_batch, way), plan.peak, budget)?);
            }
            let Candidate { micro_batch, seconds, .. } = fastest(survey, plan.bucket, way, plan.micro_batch - 1, speed);
            (plan.micro_batch, plan.seconds) = (micro_batch, seconds);
            plan.accumulation = plan.bucket.utterances.div_ceil(micro_batch);
            plan.peak = survey.weigh_beside(plan.bucket, micro_batch, plan.choice, largest)?.peak;
        }
    }
    Ok(largest)
}

/// How many blocks are computed a second time.
fn passes(demand: &Demand, remat: Remat) -> u32 {
    match remat {
        Remat::None => 0,
        Remat::First(blocks) => blocks,
        Remat::Half => demand.blocks / 2,
        Remat::All => demand.blocks,
    }
}

/// The fastest way within the budget. More utterances never need less memory, so for each way the most that fit are found
/// by halving; ways that could not be faster with all utterances at once are not looked at.
fn bucket_plan<S: Subject + Sync>(
    survey: &Survey<'_, S>,
    bucket: BatchShape,
    budget: Bytes,
    speed: &Speed,
) -> Result<BucketPlan, PlanError> {
    let demand = survey.demand();
    let mut ways: Vec<(f64, Way)> = Vec::new();
    for &chunk in &demand.chunks {
        for &second_passes in &demand.second_passes {
            let way = Way { second_passes, chunk };
            ways.push((fastest(survey, bucket, way, bucket.utterances, speed).seconds, way));
        }
    }
    ways.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut best: Option<Candidate> = None;
    for (hoped, way) in ways {
        if best.is_some_and(|best| best.seconds <= hoped) {
            break;
        }
        let Some(most) = most_that_fit(survey, bucket, way, budget)? else { continue };
        let found = fastest(survey, bucket, way, most, speed);
        if best.is_none_or(|best| found.seconds < best.seconds) {
            best = Some(found);
        }
    }
    if let Some(Candidate { way, micro_batch, seconds }) = best {
        let choice = choice(demand, way);
        let weighed = survey.weigh(bucket, micro_batch, choice)?;
        let accumulation = bucket.utterances.div_ceil(micro_batch);
        return Ok(BucketPlan { bucket, micro_batch, accumulation, choice, peak: weighed.peak, seconds });
    }
    let least = Way {
        second_passes: demand.second_passes.iter().copied().max().unwrap_or(0),
        chunk: demand.chunks.iter().copied().max_by_key(|chunk| std::cmp::Reverse(width(*chunk))).flatten(),
    };
    let micro_batch = demand.micro_batch.unwrap_or(1).min(bucket.utterances);
    let weighed = survey.weigh(bucket, micro_batch, choice(demand, least))?;
    Err(refusal(survey, bucket, (micro_batch, least), weighed.peak, budget)?)
}

/// The most utterances at once that fit, if one does.
fn most_that_fit<S: Subject + Sync>(
    survey: &Survey<'_, S>,
    bucket: BatchShape,
    way: Way,
    budget: Bytes,
) -> Result<Option<u32>, TraceError> {
    let fits = |utterances: u32| -> Result<bool, TraceError> {
        Ok(survey.weigh(bucket, utterances, choice(survey.demand(), way))?.peak <= budget)
    };
    if let Some(fixed) = survey.demand().micro_batch {
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
fn fastest<S: Subject + Sync>(
    survey: &Survey<'_, S>,
    bucket: BatchShape,
    way: Way,
    most: u32,
    speed: &Speed,
) -> Candidate {
    let cost = |utterances: u32| survey.about(bucket, utterances, way.second_passes, way.chunk);
    let least = survey.demand().micro_batch.map_or(1, |_| most);
    let candidate = |micro_batch: u32| Candidate {
        way,
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

fn choice(demand: &Demand, way: Way) -> Choice {
    let remat = match way.second_passes {
        0 => Remat::None,
        passes if passes >= demand.blocks => Remat::All,
        passes => Remat::First(passes),
    };
    Choice { remat, attention_chunk: way.chunk, precision: demand.precision }
}

/// The smallest plan of the largest bucket.
fn smallest<S: Subject + Sync>(survey: &Survey<'_, S>) -> Result<Weighed, TraceError> {
    let demand = survey.demand();
    let bucket = demand.buckets.iter().copied().max_by_key(|bucket| bucket.frames).expect("there is a batch");
    survey.weigh(bucket, 1, Choice { remat: Remat::All, attention_chunk: chunk(), precision: demand.precision })
}

/// A chunk that is small, and still large enough to keep a card busy.
fn chunk() -> Option<NonZeroU32> {
    NonZeroU32::new(64)
}

/// Says what is missing, and the cheapest change that would do, in the order of what it costs.
fn refusal<S: Subject + Sync>(
    survey: &Survey<'_, S>,
    bucket: BatchShape,
    (mut utterances, least): (u32, Way),
    needed: Bytes,
    budget: Bytes,
) -> Result<PlanError, TraceError> {
    let demand = survey.demand();
    let missing = Bytes(needed.0 - budget.0);
    let piece = bucket.with_utterances(utterances);
    let refused = |change| PlanError::NothingFits { bucket: piece, needed, budget, missing, change };
    let mut best = choice(demand, least);
    let fits = |utterances: u32, choice: Choice| -> Result<bool, TraceError> {
        Ok(survey.weigh(bucket, utterances, choice)?.peak <= budget)
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
        return Ok(refused(Some(Change::Rematerialise)));
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
    let weighed = survey.weigh(bucket, utterances, best)?;
    let lean = StepMemory { state_bits: demand.lean_bits.min(demand.step.state_bits), ..demand.step };
    let saved = demand.step.state_of(survey.values()).0 - lean.state_of(survey.values()).0;
    if saved > 0 && weighed.peak.0.saturating_sub(saved) <= budget.0 {
        return Ok(refused(Some(Change::LeanOptimizer)));
    }
    // Activations shrink with the width, too: the share of all is a share that fits.
    let share = budget.0 as f64 / weighed.peak.0 as f64;
    Ok(refused((share > 0.01).then_some(Change::SmallerModel { share })))
}

/// The most utterances of the longest bucket that are validated at once within the budget.
fn validation_batch<S: Subject + Sync>(survey: &Survey<'_, S>, budget: Bytes) -> Result<u32, PlanError> {
    let demand = survey.demand();
    let bucket = demand.buckets.iter().copied().max_by_key(|bucket| bucket.frames).expect("there is a batch");
    let (one, two) = (survey.validation(bucket, 1)?, survey.validation(bucket, 2)?);
    let each = two.0.saturating_sub(one.0).max(1);
    let base = survey.idle();
    let room = budget.0.saturating_sub(base.0 + one.0);
    Ok((1 + room / each).min(u64::from(bucket.utterances)) as u32)
}

impl<S: Subject> Survey<'_, S> {
    /// What the batch of a bucket takes beside its pieces.
    pub(crate) fn around(&self, bucket: BatchShape) -> Result<StepMemory, TraceError> {
        let demand = self.demand();
        let one = batch_bytes(self.subject(), bucket.with_utterances(1), demand.rules)?;
        let batch = Bytes(one.0 * u64::from(bucket.utterances));
        let is_host = matches!(demand.rules, BackendRules::Flex { .. });
        Ok(StepMemory {
            host_batch: if is_host { Bytes(batch.0 + demand.step.host_batch.0) } else { demand.step.host_batch },
            prefetch: Bytes(batch.0 * u64::from(demand.prefetch)),
            ..demand.step
        })
    }
}
