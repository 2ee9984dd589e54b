//! Plans the memory of a run from the lengths of its own utterances, before training starts.

use plimsoll_core::{Bytes, CountingAllocator, MemoryMeter};
use plimsoll_data::SampleMeta;
use plimsoll_memory::{Demand, MemoryModel, PlanError, TraceError, Traceable, plan};

use crate::config::{BackendChoice, RunConfig};
use crate::data::{PreparedData, cache_shares};
use crate::demand::{DemandBuilder, TargetPlans};
use crate::device::TrainingDevice;
use crate::error::Failure;
use crate::invocation::command;
use crate::mapping;
use crate::memory_plan::MemoryPlan;
use crate::plan::RunPlan;
use crate::reporter::{Level, Reporter};
use crate::target::Target;
use crate::with_model;

/// Maximum number of batches that a loader holds if the configuration does not set it, including the batch of the
/// current step.
const LOADED_BATCHES: u64 = 18;
/// Share of a CPU budget that the plan does not use: for errors of the plan, and for short needs of the process.
const MARGIN: f64 = 0.04;
/// Memory for the buffers that hold the audio of a few files while they are read and decoded at once.
const DECODE_BUFFERS: Bytes = Bytes::mib(4);

/// A run whose memory is to be planned, with everything that the planning needs.
#[derive(Clone, Copy)]
pub(crate) struct MemoryRequest<'a> {
    /// The plan of the run, without its memory.
    pub(crate) run: &'a RunPlan,
    /// Data of the run.
    pub(crate) prepared: &'a PreparedData,
    /// Device that memory is planned for; `None` if its memory is neither known nor limited.
    pub(crate) target: Option<&'a Target>,
    /// Allocator that counts the memory of the process.
    pub(crate) process: &'static CountingAllocator,
    /// Receiver of progress and notes.
    pub(crate) reporter: &'a dyn Reporter,
}

impl MemoryRequest<'_> {
    /// Plans the memory of the run; `None` if the memory of the device is not known and not limited.
    ///
    /// # Errors
    /// If the run does not fit into its budget or onto its GPU, even with other settings that give the same result.
    pub(crate) fn plan(&self) -> Result<Option<MemoryPlan>, Failure> {
        let &Self { run, prepared, reporter, target, .. } = self;
        let (config, budget) = (&run.config, run.training.budget);
        let Some(target) = target else { return Ok(None) };
        let metas = prepared.training.metas();
        let builder = DemandBuilder::from_corpus(config.clone(), run.model.clone(), &prepared.grid, &metas)?;
        let is_host = matches!(target, Target::Host { .. });
        // On the CPU replicas share the memory, and the process needs memory beside them.
        let sharing_replicas = if is_host { run.training.own_replicas.max(1) as u64 } else { 1 };
        let outside_model = if is_host { self.outside_model(&metas) } else { Bytes(0) };
        let available = match budget {
            Some(budget) if is_host => {
                let planned = (budget.0 as f64 * (1.0 - MARGIN)) as u64;
                Bytes(planned.saturating_sub(outside_model.0) / sharing_replicas)
            }
            _ => target.budget(config),
        };
        // On the CPU without a limit there is nothing to search: plan the micro-batch that the run will use.
        let fixed = (budget.is_none() && is_host)
            .then(|| run.training.micro_batch.div_ceil(run.training.lanes.max(1)).max(1) as u32);
        let progress = reporter.progress("planning memory", None);
        let found = with_model!(&builder.model, model => plans(model, &builder, target, (available, fixed)));
        drop(progress);
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.without_plan(&error.into(), outside_model),
        };
        if let (Err(error), true) = (&found.as_written, found.is_changed()) {
            let why = format!("as it is written the run does not fit: {error}");
            reporter.line(Level::Note, &format!("{why}; it computes the same result in less memory"));
        }
        match found.used() {
            Ok(plan) => Ok(Some(MemoryPlan { budget, outside_model, sharing_replicas, plan: plan.clone() })),
            Err(error) => self.without_plan(error, outside_model),
        }
    }

    /// Returns the result of planning after `error` prevented a plan: an error for the user, or `None` and a note if
    /// the run trains on the CPU without a memory limit. `outside_model` is the memory that the process needs beside
    /// model and steps.
    fn without_plan(&self, error: &PlanError, outside_model: Bytes) -> Result<Option<MemoryPlan>, Failure> {
        let budget = self.run.training.budget;
        if budget.is_none() && matches!(self.target, Some(Target::Host { .. })) {
            self.reporter.line(Level::Note, &format!("the memory of this run is not planned: {error}"));
            return Ok(None);
        }
        let change = match error.advice() {
            Some(advice) => format!("the cheapest way that fits: {advice}"),
            None => format!("`{}` says what would fit", command("memtest")),
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
        let frame = prepared.training.frame_width() as u64 * size_of::<f32>() as u64;
        let [training_cache, validation_cache] = cache_shares(config);
        let cached = prepared.training.whole_size().0.min(training_cache.0)
            + prepared.validation.whole_size().0.min(validation_cache.0);
        let longest = metas.iter().map(|meta| u64::from(meta.frames.0)).max().unwrap_or(0);
        let utterances = u64::from(mapping::utterances_at_length(config, metas, longest as u32));
        let batches = config.data.prefetch_buffer_size.map_or(LOADED_BATCHES, |ready| u64::from(ready) + 2);
        // Batches have all lengths; half the longest is above their average.
        let waiting = batches * utterances * longest * frame / 2;
        Bytes(self.process.current().0 + cached + waiting + DECODE_BUFFERS.0)
    }
}

/// Plans a run on `target`, with `available` memory for each replica: as written and at best, or with `fixed` utterances
/// at once and nothing to choose.
fn plans<S: Traceable + Sync>(
    subject: &S,
    builder: &DemandBuilder,
    target: &Target,
    (available, fixed): (Bytes, Option<u32>),
) -> Result<TargetPlans, TraceError> {
    let demand = builder.as_written(target);
    let Some(micro_batch) = fixed else {
        return builder.plans(&MemoryModel::new(subject, demand)?, target, available);
    };
    let options = mapping::fixed(&builder.config, &builder.model, target.traits(), micro_batch);
    let model = MemoryModel::new(subject, Demand { options, ..demand })?;
    let found = plan(&model, target.limit(available), &target.speed());
    Ok(TargetPlans { as_written: found.clone(), at_best: found })
}

/// Returns the target that stands for `device` with `lanes` for each replica; `None` if its memory is neither known nor
/// limited. Processes that share the machine's memory have equal shares of it. Of several GPUs it is the one with the least
/// free memory, as all of them compute alike.
pub(crate) fn target_for(config: &RunConfig, device: &TrainingDevice, lanes: usize) -> Option<Target> {
    if device.is_host {
        let Target::Host { memory, .. } = Target::host() else { return None };
        let memory = Bytes(memory.0 / device.sharing_processes as u64);
        return Some(Target::Host { memory, threads: lanes });
    }
    match (config.device.backend, config.training.max_memory) {
        // Only CUDA reports free memory.
        (BackendChoice::Wgpu, None) => None,
        (BackendChoice::Wgpu, Some(budget)) => Target::webgpu_with_memory(budget),
        _ => (0..device.replicas)
            .map(|rank| Target::local_gpu(device.index + rank))
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .min_by_key(|target| target.budget(config)),
    }
}
