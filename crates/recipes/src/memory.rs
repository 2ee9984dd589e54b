//! The memory of a run, planned from the lengths of its own utterances before anything is spent.

use plimsoll_core::{BatchShape, Bytes, CountingAllocator, MemoryMeter};
use plimsoll_data::SampleMeta;
use plimsoll_memory::{Demand, MemoryModel, Plan, PlanError, Traceable, plan};

use crate::config::{BackendChoice, RunConfig};
use crate::data::Prepared;
use crate::demand::DemandBuilder;
use crate::device::TrainingDevice;
use crate::error::Failure;
use crate::mapping::{self, ModelPlan};
use crate::memory_plan::MemoryPlan;
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::target::{self, Target};

/// Batches that a loader has ready at most, where nobody says how many, and one that is being cut into pieces.
const READY: u64 = 18;
/// Share of a budget on the CPU that the plan leaves alone: what it is wrong by, and what the process needs now and then.
const MARGIN: f64 = 0.04;
/// What reading and decoding a few files takes at once.
const READING: Bytes = Bytes::mib(4);

/// Plans `run` on `device`; nothing where its memory is not known and not limited.
pub fn planned(
    run: &RunPlan,
    prepared: &Prepared,
    device: &TrainingDevice,
    process: &'static CountingAllocator,
    reporter: &dyn Reporter,
) -> Result<Option<MemoryPlan>, Failure> {
    let config = &run.config;
    let budget = run.training.budget;
    let Some(target) = target_of(config, device, run.training.lanes, budget) else { return Ok(None) };
    let metas = prepared.training.metas();
    // Each replica has its part of a batch, and on the CPU its share of the memory.
    let replicas = run.training.replicas.max(1);
    let part = |bucket: BatchShape| bucket.with_utterances(bucket.utterances.div_ceil(replicas as u32));
    let shapes: Vec<BatchShape> =
        mapping::corpus_shapes(config, &prepared.grid, &metas).into_iter().map(part).collect();
    let sharing = if device.is_host { replicas as u64 } else { 1 };
    let around = if device.is_host { around(config, prepared, &metas, process) } else { Bytes(0) };
    let available = match budget {
        Some(budget) => Bytes(((budget.0 as f64 * (1.0 - MARGIN)) as u64).saturating_sub(around.0) / sharing),
        None => target.budget(config),
    };
    let asked = DemandBuilder { config: config.clone(), model: run.model, shapes };
    let mut written = asked.as_written(&target);
    written.precision = run.training.choice.precision;
    if budget.is_none() && device.is_host {
        // Nothing has to be looked for: the run does what is written, and this is what it takes.
        let lanes = run.training.lanes.max(1);
        written.micro_batch = Some(run.training.micro_batch.div_ceil(lanes).max(1) as u32);
    }
    let waiting = reporter.progress("planning memory", None);
    let found = match &run.model {
        ModelPlan::Recogniser(model) => within(model, &asked, &target, written, available),
        ModelPlan::Synthesiser(model) => within(model, &asked, &target, written, available),
    };
    drop(waiting);
    match found {
        Ok(plan) => Ok(Some(MemoryPlan { budget, around, sharing, plan })),
        Err(error) => refused(&error, budget, around, device, reporter),
    }
}

/// Why there is no plan: a message where the run was to be held to a budget, and a note where it was not.
fn refused(
    error: &PlanError,
    budget: Option<Bytes>,
    around: Bytes,
    device: &TrainingDevice,
    reporter: &dyn Reporter,
) -> Result<Option<MemoryPlan>, Failure> {
    if budget.is_none() && device.is_host {
        reporter.line(Level::Note, &format!("the memory of this run is not planned: {error}"));
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
    Err(Failure::invalid(format!("the run does not fit{into}: {why}{beside}"), change))
}

/// The plan as the configuration is written, or by whatever way gives the same result where that does not fit.
fn within<S: Traceable + Sync>(
    subject: &S,
    asked: &DemandBuilder,
    target: &Target,
    written: Demand,
    budget: Bytes,
) -> Result<Plan, PlanError> {
    let speed = target.speed(written.precision);
    let survey = MemoryModel::new(subject, written.clone())?;
    match plan(&survey, budget, &speed) {
        Err(PlanError::NothingFits { .. }) => {
            let free = Demand { precision: written.precision, ..asked.at_best(target) };
            plan(&MemoryModel::new(subject, free)?, budget, &speed)
        }
        other => other,
    }
}

/// Where the run takes place, as the planner sees it.
fn target_of(config: &RunConfig, device: &TrainingDevice, lanes: usize, budget: Option<Bytes>) -> Option<Target> {
    if device.is_host {
        let Target::Host { memory, .. } = target::host() else { return None };
        return Some(Target::Host { memory, threads: lanes });
    }
    match (config.device.backend, budget) {
        // Only CUDA's cards tell what is free on them.
        (BackendChoice::Wgpu, None) => None,
        (BackendChoice::Wgpu, Some(budget)) => target::card_of(budget),
        _ => match target::here() {
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
    let [most, most_held_out] = crate::data::cache_shares(config);
    let kept = all.min(most.0) + validation.min(most_held_out.0);
    let longest = metas.iter().map(|meta| u64::from(meta.frames.0)).max().unwrap_or(0);
    let utterances = u64::from(mapping::utterances_at_length(&config.data, metas, longest as u32));
    let ready = config.data.prefetch_buffer_size.map_or(READY, |ready| u64::from(ready) + 2);
    // Batches are of all lengths: half the longest is more than they are on average.
    let waiting = ready * utterances * longest * frame / 2;
    Bytes(process.current().0 + kept + waiting + READING.0)
}
