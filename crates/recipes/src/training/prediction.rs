//! What a plan predicts of a step: memory by owner, and the cost of each operation.

use plimsoll_core::Bytes;
use plimsoll_memory::{
    BackendRules, BucketPlan, Demand, MemoryModel, OperationCost, Owner, Speed, StateOption, Traceable, operation_costs,
};

use crate::demand::DemandBuilder;
use crate::device::TrainingDevice;
use crate::error::{Failure, FailureExt};
use crate::memory::target_for;
use crate::memory_plan::Shares;
use crate::plan::RunPlan;
use crate::with_trained;

/// Prediction of the step that needs most memory.
#[derive(Clone, Debug)]
pub struct StepPrediction {
    /// Length and micro-batch of the step.
    pub bucket: BucketPlan,
    /// Memory by owner at the peak of the step, for one replica.
    pub owners: Vec<(Owner, Bytes)>,
    /// Cost of the operations of one micro-batch, by name.
    pub operations: Vec<OperationCost>,
    /// Speed of the device by the cost model.
    pub speed: Speed,
}

impl StepPrediction {
    /// Predicts the step of `plan` that needs most memory; `None` if the memory of the run is not planned.
    ///
    /// # Errors
    /// If the device cannot be opened, or the model cannot be traced.
    pub fn of(plan: &RunPlan) -> Result<Option<Self>, Failure> {
        let device = TrainingDevice::choose(&plan.config.device)?;
        let (Some(memory), Some(target)) = (&plan.memory, target_for(&plan.config, &device)) else {
            return Ok(None);
        };
        let Some(bucket) = memory.plan.buckets.iter().max_by_key(|bucket| bucket.peak) else { return Ok(None) };
        let shapes = memory.plan.buckets.iter().map(|bucket| bucket.bucket).collect();
        let replicas = plan.training.own_replicas.max(1) as u64;
        let host = Shares { replicas, ..memory.shares };
        let builder = DemandBuilder::of_shapes(plan.config.clone(), plan.model.clone(), shapes).with_host(host);
        let demand = builder.as_written(&target);
        let (rules, state) = (target.rules(), memory.plan.state);
        let (owners, operations) = with_trained!(builder, model => details(model, demand, bucket, rules, state)?);
        Ok(Some(Self { bucket: bucket.clone(), owners, operations, speed: builder.speed(&target) }))
    }
}

/// Memory at the peak by owner, and the cost of operations.
type StepDetails = (Vec<(Owner, Bytes)>, Vec<OperationCost>);

/// Predicts the memory at the peak of `bucket` by owner, and the cost of its operations.
fn details<S: Traceable + Sync>(
    model: &S,
    demand: Demand,
    bucket: &BucketPlan,
    rules: BackendRules,
    state: StateOption,
) -> Result<StepDetails, Failure> {
    let memory = MemoryModel::new(model, demand).invalid()?;
    let run = memory.run_memory(bucket.bucket, bucket.micro_batch, bucket.choice, state).failed()?.0;
    Ok((run.timeline.owners_at_peak(), operations(model, bucket, rules)?))
}

fn operations<S: Traceable>(
    model: &S,
    bucket: &BucketPlan,
    rules: BackendRules,
) -> Result<Vec<OperationCost>, Failure> {
    let shape = bucket.bucket.with_utterances(bucket.micro_batch);
    operation_costs(model, shape, bucket.choice, rules).failed()
}
