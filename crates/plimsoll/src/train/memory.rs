//! The memory of a run, planned from the lengths of its own utterances before anything is spent.

use plimsoll_core::{BatchShape, Bytes, CountingAllocator, Frames, MemoryMeter};
use plimsoll_data::{BatchSize, SampleMeta};
use plimsoll_memory::{BucketPlan, Demand, Plan, PlanError, Subject, Survey, plan};
use plimsoll_train::Planned;
use serde::Serialize;

use super::data::{Prepared, batching};
use super::plan::{ModelPlan, RunPlan};
use crate::config::{BackendChoice, RunConfig, Task};
use crate::device::Chosen;
use crate::failure::Failure;
use crate::memtest::ask::{Asked, Target};
use crate::memtest::{self, waiting};

/// Shares of the utterances, by length, that a length is planned for.
const QUANTILES: [f64; 4] = [0.5, 0.8, 0.95, 1.0];
/// Batches that a loader has ready at most, where nobody says how many, and one that is being cut into pieces.
const READY: u64 = 18;
/// Share of a budget on the CPU that the plan leaves alone: what it is wrong by, and what the process needs now and then.
const MARGIN: f64 = 0.04;
/// What reading and decoding a few files takes at once.
const READING: Bytes = Bytes::mib(4);

/// What a run will need.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemoryPlan {
    /// What may be used, where that is limited.
    pub(crate) budget: Option<Bytes>,
    /// What the process holds beside the model, where that is the same memory: lists, features, batches.
    pub(crate) around: Bytes,
    /// Replicas that are in the same memory.
    pub(crate) sharing: u64,
    /// Model and steps of one of them.
    pub(crate) plan: Plan,
}

impl MemoryPlan {
    /// The most that is in use at once.
    pub(crate) fn peak(&self) -> Bytes {
        Bytes(self.plan.peak.0 * self.sharing + self.around.0)
    }

    /// How batches of each length are begun with, on so many lanes.
    pub(crate) fn governed(&self, lanes: usize) -> Vec<Planned> {
        let planned = |bucket: &BucketPlan| Planned {
            shape: bucket.bucket,
            limit: (bucket.micro_batch as usize * lanes.max(1)).min(bucket.bucket.utterances.max(1) as usize),
            choice: bucket.choice,
        };
        self.plan.buckets.iter().map(planned).collect()
    }

    /// What a batch of each length takes. What the pools of a card once reserved stays, whatever comes after.
    pub(crate) fn expected(&self, is_host: bool) -> Vec<(BatchShape, Bytes)> {
        if !is_host {
            return self.plan.buckets.iter().map(|bucket| (bucket.bucket, self.peak())).collect();
        }
        self.plan
            .buckets
            .iter()
            .map(|bucket| (bucket.bucket, Bytes(bucket.peak.0 * self.sharing + self.around.0)))
            .collect()
    }

    /// The plan in a line.
    pub(crate) fn told(&self) -> String {
        let fewest = self.plan.buckets.iter().min_by_key(|bucket| bucket.micro_batch);
        let pieces = fewest.map_or(1, |bucket| bucket.accumulation);
        let cut = if pieces > 1 { format!(", the longest batches in {pieces} pieces") } else { String::new() };
        match self.budget {
            Some(budget) => format!("about {} of at most {budget}{cut}", self.peak()),
            None => format!("about {}{cut}", self.peak()),
        }
    }
}

/// Plans `run` on `device`; nothing where its memory is not known and not limited.
pub(crate) fn planned(
    run: &RunPlan,
    prepared: &Prepared,
    device: &Chosen,
    process: &'static CountingAllocator,
) -> Result<Option<MemoryPlan>, Failure> {
    let config = &run.config;
    let budget = run.training.budget;
    let Some(target) = target(config, device, run.training.lanes, budget) else { return Ok(None) };
    let asked = Asked { config: config.clone(), model: run.model };
    let metas = prepared.training.metas();
    // Each replica has its part of a batch, and on the CPU its share of the memory.
    let replicas = run.training.replicas.max(1);
    let part = |bucket: BatchShape| bucket.with_utterances(bucket.utterances.div_ceil(replicas as u32));
    let buckets: Vec<BatchShape> = buckets(config, prepared, &metas).into_iter().map(part).collect();
    let sharing = if device.is_host { replicas as u64 } else { 1 };
    let around = if device.is_host { around(config, prepared, &metas, process) } else { Bytes(0) };
    let available = match budget {
        Some(budget) => Bytes(((budget.0 as f64 * (1.0 - MARGIN)) as u64).saturating_sub(around.0) / sharing),
        None => target.budget(config),
    };
    let mut written = Demand { buckets, ..asked.as_written(&target) };
    written.precision = run.training.choice.precision;
    if budget.is_none() && device.is_host {
        // Nothing has to be looked for: the run does what is written, and this is what it takes.
        let lanes = run.training.lanes.max(1);
        written.micro_batch = Some(run.training.micro_batch.div_ceil(lanes).max(1) as u32);
    }
    let told = waiting("planning its memory");
    let found = match &run.model {
        ModelPlan::Recogniser(model) => within(model, &asked, &target, written, available),
        ModelPlan::Synthesiser(model) => within(model, &asked, &target, written, available),
    };
    told.finish_and_clear();
    match found {
        Ok(plan) => Ok(Some(MemoryPlan { budget, around, sharing, plan })),
        Err(error) => refused(&error, budget, around, device),
    }
}

/// Why there is no plan: a message where the run was to be held to a budget, and a note where it was not.
fn refused(
    error: &PlanError,
    budget: Option<Bytes>,
    around: Bytes,
    device: &Chosen,
) -> Result<Option<MemoryPlan>, Failure> {
    if budget.is_none() && device.is_host {
        eprintln!("note: the memory of this run is not planned: {error}");
        return Ok(None);
    }
    let change = match error {
        PlanError::NothingFits { change: Some(change), .. } => format!("the cheapest change: {change}"),
        _ => "`plimsoll memtest` says what would fit".into(),
    };
    let beside = if around.0 > 0 { format!(" (the process takes {around} beside it)") } else { String::new() };
    // What was asked for, and not what the process leaves of it, is the number that a person knows.
    let into = budget.map_or(String::new(), |budget| format!(" into {budget}"));
    let why = match error {
        PlanError::NoBudget { needed, .. } => format!("the smallest plan needs {needed}"),
        other => other.to_string(),
    };
    Err(Failure::wrong(format!("the run does not fit{into}: {why}{beside}"), change))
}

/// The plan as the configuration is written, or by whatever way gives the same result where that does not fit.
fn within<S: Subject + Sync>(
    subject: &S,
    asked: &Asked,
    target: &Target,
    written: Demand,
    budget: Bytes,
) -> Result<Plan, PlanError> {
    let speed = target.speed(written.precision);
    let survey = Survey::of(subject, written.clone())?;
    match plan(&survey, budget, &speed) {
        Err(PlanError::NothingFits { .. }) => {
            let (buckets, precision) = (written.buckets.clone(), written.precision);
            let free = Demand { buckets, precision, ..asked.free(target) };
            plan(&Survey::of(subject, free)?, budget, &speed)
        }
        other => other,
    }
}

/// Where the run takes place, as the planner sees it.
fn target(config: &RunConfig, device: &Chosen, lanes: usize, budget: Option<Bytes>) -> Option<Target> {
    if device.is_host {
        let Target::Host { memory, .. } = memtest::host() else { return None };
        return Some(Target::Host { memory, threads: lanes });
    }
    match (config.device.backend, budget) {
        // Only CUDA's cards tell what is free on them.
        (BackendChoice::Wgpu, None) => None,
        (BackendChoice::Wgpu, Some(budget)) => memtest::card_of(budget),
        _ => match memtest::here() {
            card @ Target::Card { .. } => Some(card),
            Target::Host { .. } => None,
        },
    }
}

/// What the process holds beside the model: what it holds now, the features that will be kept, and batches that wait.
fn around(config: &RunConfig, prepared: &Prepared, metas: &[SampleMeta], process: &'static CountingAllocator) -> Bytes {
    let width = prepared.training.log_mel().n_mels() as u64;
    let frame = width * size_of::<f32>() as u64;
    let all: u64 = metas.iter().map(|meta| u64::from(meta.frames.0) * frame).sum();
    let held_out = prepared.validation.metas();
    let validation: u64 = held_out.iter().map(|meta| u64::from(meta.frames.0) * frame).sum();
    let [most, most_held_out] = super::data::cache_shares(config);
    let kept = all.min(most.0) + validation.min(most_held_out.0);
    let longest = metas.iter().map(|meta| u64::from(meta.frames.0)).max().unwrap_or(0);
    let utterances = u64::from(utterances(config, metas, longest as u32));
    let ready = config.data.prefetch_buffer_size.map_or(READY, |ready| u64::from(ready) + 2);
    // Batches are of all lengths: half the longest is more than they are on average.
    let waiting = ready * utterances * longest * frame / 2;
    Bytes(process.current().0 + kept + waiting + READING.0)
}

/// The shapes that are planned: for some lengths, a whole batch of utterances up to that length.
fn buckets(config: &RunConfig, prepared: &Prepared, metas: &[SampleMeta]) -> Vec<BatchShape> {
    let mut lengths: Vec<u32> = metas.iter().map(|meta| meta.frames.0).collect();
    lengths.sort_unstable();
    // Slower speech is longer.
    let speeds = if config.augment.enabled && config.task == Task::Asr { &config.augment.speeds[..] } else { &[] };
    let slowest = speeds.iter().copied().fold(1.0, f64::min);
    let bucket = |share: f64| {
        let place = ((lengths.len() as f64 * share).ceil() as usize).clamp(1, lengths.len()) - 1;
        let longest = lengths[place];
        let texts = metas.iter().filter(|meta| meta.frames.0 <= longest).map(|meta| meta.tokens);
        let frames = prepared.grid.frames((f64::from(longest) / slowest).ceil() as u32);
        let tokens = prepared.grid.tokens(frames, texts.max().unwrap_or(1)).max(1);
        BatchShape { utterances: utterances(config, metas, longest), frames: Frames(frames), tokens }
    };
    let mut buckets: Vec<BatchShape> = QUANTILES.into_iter().map(bucket).collect();
    buckets.dedup_by_key(|bucket| bucket.frames);
    buckets
}

/// Utterances of a batch whose longest has `frames`.
fn utterances(config: &RunConfig, metas: &[SampleMeta], frames: u32) -> u32 {
    let most = metas.len().max(1) as u32;
    match batching(&config.data).size {
        BatchSize::Utterances(utterances) => utterances.get().min(most),
        BatchSize::Seconds(seconds) => {
            let of_length = metas.iter().filter(|meta| meta.frames.0 >= frames);
            let shortest = of_length.map(|meta| meta.seconds.0).fold(f64::INFINITY, f64::min);
            ((seconds.0 / shortest) as u32).clamp(1, most)
        }
    }
}
