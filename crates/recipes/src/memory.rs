//! Plans the memory of a run from the lengths of its own utterances, before training starts.

use plimsoll_config::RunConfig;
use plimsoll_config::choices::BackendChoice;
use plimsoll_config::invocation::command;
use plimsoll_core::Bytes;
use plimsoll_memory::{MemoryModel, PlanError, TraceError, Traceable};

use crate::data::PreparedData;
use crate::demand::{DemandBuilder, TargetPlans};
use crate::device::TrainingDevice;
use crate::error::Failure;
use crate::memory_plan::{MemoryPlan, Shares};
use crate::plan::RunPlan;
use crate::process_memory::{InUse, outside_model_of};
use crate::reporter::{Level, Reporter};
use crate::target::Target;
use crate::with_trained;

/// A run whose memory is to be planned, with everything that the planning needs.
#[derive(Clone, Copy)]
pub(crate) struct MemoryRequest<'a> {
    /// The plan of the run, without its memory.
    pub(crate) run: &'a RunPlan,
    /// Data of the run.
    pub(crate) prepared: &'a PreparedData,
    /// Device that memory is planned for; `None` if its memory is neither known nor limited.
    pub(crate) target: Option<&'a Target>,
    /// Memory of the process before the model was made.
    pub(crate) in_use: InUse,
    /// Memory that a plan may use in the place of the budget of the device, after its steps were measured.
    pub(crate) available: Option<Bytes>,
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
        let builder = builder.with_host(Shares {
            outside_model: outside_model_of(config, prepared, &metas, &run.model, self.in_use),
            replicas: run.training.own_replicas.max(1) as u64,
        });
        let builder = self.available.into_iter().fold(builder, DemandBuilder::with_available);
        let shares = builder.shares(target);
        let progress = reporter.progress("planning memory", None);
        let found = with_trained!(builder, model => plans(model, &builder, target));
        drop(progress);
        let found = match found {
            Ok(found) => found,
            Err(error) => return self.without_plan(&error.into(), shares),
        };
        if let (Err(error), true) = (&found.as_written, found.is_changed()) {
            let why = format!("as it is written the run does not fit: {error}");
            reporter.line(Level::Note, &format!("{why}; it computes the same result in less memory"));
        }
        match found.used() {
            Ok(plan) => Ok(Some(MemoryPlan { budget, shares, plan: plan.clone(), measured: None })),
            Err(error) => self.without_plan(error, shares),
        }
    }

    /// Returns the result of planning after `error` prevented a plan: an error for the user, or `None` and a note if
    /// the run trains on the CPU without a memory limit. `shares` says what the process needs beside model and steps.
    fn without_plan(&self, error: &PlanError, shares: Shares) -> Result<Option<MemoryPlan>, Failure> {
        let budget = self.run.training.budget;
        if budget.is_none() && matches!(self.target, Some(Target::Host { .. })) {
            self.reporter.line(Level::Note, &format!("the memory of this run is not planned: {error}"));
            return Ok(None);
        }
        let change = match error.advice() {
            Some(advice) => format!("the cheapest way that fits: {advice}"),
            None => format!("`{}` says what would fit", command("memtest")),
        };
        let beside = shares.beside();
        // The user knows the budget that was written, and not what remains of it for the model.
        let into = budget.map_or(String::new(), |budget| format!(" into {budget}"));
        let why = match error {
            PlanError::NoBudget { needed, .. } => format!("the smallest plan needs {needed}"),
            other => other.to_string(),
        };
        Err(Failure::invalid(format!("the run does not fit{into}: {why}{beside}"), change))
    }
}

/// Plans a run on `target`: as written and at best.
fn plans<S: Traceable + Sync>(
    subject: &S,
    builder: &DemandBuilder,
    target: &Target,
) -> Result<TargetPlans, TraceError> {
    builder.plans(&MemoryModel::new(subject, builder.as_written(target))?, target)
}

/// Returns the target that stands for `device`; `None` if its memory is neither known nor limited. Processes that share the
/// machine's memory have equal shares of it. Of several GPUs it is the one with the least free memory, as all of them compute
/// alike.
pub(crate) fn target_for(config: &RunConfig, device: &TrainingDevice) -> Option<Target> {
    if device.is_host {
        let Target::Host { memory, .. } = Target::host() else { return None };
        let memory = Bytes(memory.0 / device.sharing_processes as u64);
        return Some(Target::Host { memory, threads: device.lanes });
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
