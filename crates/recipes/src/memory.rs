//! Plans the memory of a run from the lengths of its own utterances, before training starts.

use plimsoll_core::{BatchShape, Bytes, CountingAllocator, MemoryMeter};
use plimsoll_data::SampleMeta;
use plimsoll_memory::{Demand, MemoryModel, Plan, PlanError, Traceable, plan};

use crate::config::{BackendChoice, RunConfig};
use crate::data::{PreparedData, cache_shares};
use crate::demand::DemandBuilder;
use crate::device::TrainingDevice;
use crate::error::Failure;
use crate::invocation::command;
use crate::mapping::{self, ModelPlan};
use crate::memory_plan::MemoryPlan;
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::target::Target;

/// Maximum number of batches that a loader holds if the configuration does not set it, including the batch of the
/// current step.
const LOADED_BATCHES: u64 = 18;
/// Share of a CPU budget that the plan does not use: for errors of the plan, and for short needs of the process.
const MARGIN: f64 = 0.04;
/// Memory that reading and decoding a few files takes at once.
const DECODE_BUFFERS: Bytes = Bytes::mib(4);

/// A run whose memory is to be planned.
#[derive(Clone, Copy)]
pub(crate) struct MemoryRequest<'a> {
    /// The plan of the run, without its memory.
    pub(crate) run: &'a RunPlan,
    /// Data of the run.
    pub(crate) prepared: &'a PreparedData,
    /// Device that trains.
    pub(crate) device: &'a TrainingDevice,
    /// Allocator that counts the memory of the process.
    pub(crate) process: &'static CountingAllocator,
    /// Receiver of progress and notes.
    pub(crate) reporter: &'a dyn Reporter,
}

impl MemoryRequest<'_> {
    /// Plans the memory; `None` if the memory of the device is not known and not limited.
    ///
    /// # Errors
    /// If the run does not fit into its budget or onto its GPU, even with other settings that give the same result.
    pub(crate) fn plan(&self) -> Result<Option<MemoryPlan>, Failure> {
        let &Self { run, prepared, device, reporter, .. } = self;
        let config = &run.config;
        let budget = run.training.budget;
        let Some(target) = target_for(config, device, run.training.lanes, budget) else { return Ok(None) };
        let metas = prepared.training.metas();
        // Each replica has a part of every batch, and on the CPU a share of the memory.
        let replicas = run.training.replicas.max(1);
        let part = |bucket: BatchShape| bucket.with_utterances(bucket.utterances.div_ceil(replicas as u32));
        let shapes: Vec<BatchShape> =
            mapping::corpus_shapes(config, &prepared.grid, &metas).into_iter().map(part).collect();
        let sharing_replicas = if device.is_host { replicas as u64 } else { 1 };
        let outside_model = if device.is_host { self.outside_model(&metas) } else { Bytes(0) };
        let available = match budget {
            Some(budget) => {
                let planned = (budget.0 as f64 * (1.0 - MARGIN)) as u64;
                Bytes(planned.saturating_sub(outside_model.0) / sharing_replicas)
            }
            None => target.budget(config),
        };
        let builder = DemandBuilder { config: config.clone(), model: run.model, shapes };
        let mut written = builder.as_written(&target);
        written.precision = run.training.choice.precision;
        if budget.is_none() && device.is_host {
            // Without a limit there is nothing to search: plan the micro-batch that the run will use.
            let lanes = run.training.lanes.max(1);
            written.micro_batch = Some(run.training.micro_batch.div_ceil(lanes).max(1) as u32);
        }
        let progress = reporter.progress("planning memory", None);
        let found = match &run.model {
            ModelPlan::Recognizer(model) => plan_within(model, &builder, &target, written, available),
            ModelPlan::Synthesizer(model) => plan_within(model, &builder, &target, written, available),
        };
        drop(progress);
        match found {
            Ok(plan) => Ok(Some(MemoryPlan { budget, outside_model, sharing_replicas, plan })),
            Err(error) => self.without_plan(&error, outside_model),
        }
    }

    /// Returns the result of planning after `error` prevented a plan: an error for the user, or `None` and a note if
    /// the run trains on the CPU without a memory limit. `outside_model` is the memory that the process needs beside
    /// model and steps.
    fn without_plan(&self, error: &PlanError, outside_model: Bytes) -> Result<Option<MemoryPlan>, Failure> {
        let budget = self.run.training.budget;
        if budget.is_none() && self.device.is_host {
            self.reporter.line(Level::Note, &format!("the memory of this run is not planned: {error}"));
            return Ok(None);
        }
        let change = match error {
            PlanError::NothingFits { change: Some(change), .. } => format!("the cheapest change: {change}"),
            _ => format!("`{}` says what would fit", command("memtest")),
        };
        let beside = match outside_model.0 {
            0 => String::new(),
            _ => format!(" (the process takes {outside_model} beside it)"),
        };
        // The user knows the budget that was written, and not what remains of it for the model.
        let into = budget.map_or(String::new(), |budget| format!(" into {budget}"));
        let why = match error {
            PlanError::NoBudget { needed, .. } => format!("the smallest plan needs {needed}"),
            other => other.to_string(),
        };
        Err(Failure::invalid(format!("the run does not fit{into}: {why}{beside}"), change))
    }

    /// Computes the memory that the process needs beside model and steps: the memory in use now, cached features, and
    /// waiting batches.
    fn outside_model(&self, metas: &[SampleMeta]) -> Bytes {
        let (config, prepared) = (&self.run.config, self.prepared);
        let width = prepared.training.log_mel().n_mels() as u64;
        let frame = width * size_of::<f32>() as u64;
        let training: u64 = metas.iter().map(|meta| u64::from(meta.frames.0) * frame).sum();
        let held_out = prepared.validation.metas();
        let validation: u64 = held_out.iter().map(|meta| u64::from(meta.frames.0) * frame).sum();
        let [training_cache, validation_cache] = cache_shares(config);
        let cached = training.min(training_cache.0) + validation.min(validation_cache.0);
        let longest = metas.iter().map(|meta| u64::from(meta.frames.0)).max().unwrap_or(0);
        let utterances = u64::from(mapping::utterances_at_length(&config.data, metas, longest as u32));
        let batches = config.data.prefetch_buffer_size.map_or(LOADED_BATCHES, |ready| u64::from(ready) + 2);
        // Batches have all lengths; half the longest is above their average.
        let waiting = batches * utterances * longest * frame / 2;
        Bytes(self.process.current().0 + cached + waiting + DECODE_BUFFERS.0)
    }
}

/// Plans the memory of a run within `budget`, from the demand `written`, which has the settings of the configuration.
/// If no such plan fits, returns the fastest plan with other settings that give the same result.
fn plan_within<S: Traceable + Sync>(
    subject: &S,
    builder: &DemandBuilder,
    target: &Target,
    written: Demand,
    budget: Bytes,
) -> Result<Plan, PlanError> {
    let speed = target.speed(written.precision);
    let survey = MemoryModel::new(subject, written.clone())?;
    match plan(&survey, budget, &speed) {
        Err(PlanError::NothingFits { .. }) => {
            let free = Demand { precision: written.precision, ..builder.at_best(target) };
            plan(&MemoryModel::new(subject, free)?, budget, &speed)
        }
        other => other,
    }
}

/// Returns the target that stands for `device`; `None` if its memory is neither known nor limited.
fn target_for(config: &RunConfig, device: &TrainingDevice, lanes: usize, budget: Option<Bytes>) -> Option<Target> {
    if device.is_host {
        let Target::Host { memory, .. } = Target::host() else { return None };
        return Some(Target::Host { memory, threads: lanes });
    }
    match (config.device.backend, budget) {
        // Only CUDA reports free memory.
        (BackendChoice::Wgpu, None) => None,
        (BackendChoice::Wgpu, Some(budget)) => Target::gpu_with_memory(budget),
        _ => match Target::local() {
            gpu @ Target::Gpu { .. } => Some(gpu),
            Target::Host { .. } => None,
        },
    }
}
