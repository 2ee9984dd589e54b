//! Measurements of a profile, as programs read them.

use std::collections::BTreeMap;

use plimsoll_core::{BatchShape, Bytes, Event, PoolMemory, StepEvent, TimeShares};
use plimsoll_recipes::training::{
    LoadingSpeed, Placement, StepPrediction, Trial, own_seconds, wall_seconds, warm_steps,
};
use plimsoll_tape::gpu::KernelTime;
use plimsoll_train::LayerTime;
use serde::{Deserialize, Deserializer, Serialize};

/// Version of the serialized form of [`Profile`].
const SCHEMA_VERSION: u32 = 1;

/// Reads an optional value that must be written: a field that is missing is an error, and not a value that is unknown.
fn required<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

/// Everything that a profile measured: what `profile --json` prints, and what `prove` reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    schema_version: u32,
    /// Where model and batches are.
    pub(super) placement: Placement,
    /// Number of steps that were measured, without the first ones.
    pub(super) steps: usize,
    /// Number of first steps that were left out.
    pub(super) left_out: usize,
    /// Mean wall time of a step.
    pub(crate) seconds_per_step: f64,
    /// Wall time of the measured steps by owner.
    pub(crate) times: TimeShares,
    /// Seconds of audio that training computes per second.
    pub(crate) audio_seconds_per_second: f64,
    /// Speed of loading without training.
    pub(super) loading: LoadingSpeed,
    /// Mean share of padding in the batches.
    pub(super) padding: f64,
    /// Mean number of micro-batches in a step.
    pub(super) micro_batches: f64,
    /// Mean number of reads from the device in a step.
    pub(crate) reads: f64,
    /// Mean number of kernels that a step launches; `None` on the CPU.
    #[serde(deserialize_with = "required")]
    pub(crate) launches: Option<f64>,
    /// Mean number of tensors that a step copies to the GPU; `None` on the CPU.
    #[serde(deserialize_with = "required")]
    pub(crate) uploads: Option<f64>,
    /// Memory.
    pub(crate) memory: MemoryProfile,
    /// Padded shapes of the batches, the most frequent first.
    pub(super) shapes: Vec<ShapeRow>,
    /// Number of micro-batches that were computed at the same time while layers were measured. The seconds of a layer are
    /// those of all of them together.
    pub(super) lanes: usize,
    /// Time of each layer, in the order of computation.
    pub(super) layers: Vec<LayerTime>,
    /// Time of the kernels of a step by name, the longest first; `None` on the CPU.
    #[serde(deserialize_with = "required")]
    pub(crate) kernels: Option<KernelProfile>,
    /// Cost of a micro-batch by operation, the dearest first; empty if the memory of the run is not planned.
    pub(super) operations: Vec<OperationRow>,
    /// Share by which a step is longer while layers are measured.
    pub(super) layer_cost: f64,
}

/// Memory of the measured steps beside the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MemoryProfile {
    /// Highest memory of a step; `None` if the device cannot measure it.
    #[serde(deserialize_with = "required")]
    pub(super) peak_bytes: Option<Bytes>,
    /// Planned peak of the run; `None` if it is not planned.
    #[serde(deserialize_with = "required")]
    pub(crate) planned_bytes: Option<Bytes>,
    /// Planned memory by owner at the peak of the largest step. It adds up to the planned peak.
    pub(super) owners: BTreeMap<String, Bytes>,
    /// Memory pools of the GPU after the last step; `None` on the CPU.
    #[serde(deserialize_with = "required")]
    pub(super) pools: Option<PoolMemory>,
    /// Settings of the pools, by their keys; empty on the CPU.
    pub(super) settings: BTreeMap<String, serde_json::Value>,
    /// Highest memory of each step, over time.
    pub(super) by_step: Vec<StepMemory>,
}

/// Memory of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepMemory {
    step: u64,
    peak_bytes: Bytes,
    /// Planned memory for batches of this shape; `None` if the plan does not cover it.
    #[serde(deserialize_with = "required")]
    planned_bytes: Option<Bytes>,
}

/// Steps of one padded shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShapeRow {
    pub(super) shape: BatchShape,
    pub(super) steps: usize,
    /// Time for compiling kernels in these steps.
    pub(super) compile_seconds: f64,
    /// Mean wall time of these steps.
    pub(crate) seconds_per_step: f64,
}

/// Kernels of a GPU, timed one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelProfile {
    /// Number of steps whose kernels were timed.
    pub(super) steps: u64,
    /// Seconds of all kernels of a step.
    pub(crate) seconds_per_step: f64,
    /// Share by which a step is longer while kernels are timed.
    pub(super) cost: f64,
    /// Kernels by name, the longest first.
    pub(crate) rows: Vec<KernelRow>,
}

/// Kernels of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelRow {
    pub(crate) name: String,
    /// Launches in a step.
    pub(crate) count: f64,
    /// Seconds in a step.
    pub(crate) seconds: f64,
    /// Share of the time of all kernels.
    pub(crate) share: f64,
    /// Share of the launches that the device could not time, so that the host did.
    pub(super) by_host: f64,
}

impl KernelRow {
    /// Returns the name without the parameters that say little to people: what remains says which operation it is, and by
    /// which method.
    pub(super) fn short_name(&self) -> String {
        let mut words = self.name.split(" | ");
        let first = words.next().unwrap_or_default();
        let says_much = |word: &&str| ["Op", "Family", "Unary"].iter().any(|end| word.ends_with(end));
        std::iter::once(first).chain(words.filter(says_much)).collect::<Vec<&str>>().join(" ")
    }
}

/// Trials of a profile. The first steps of all of them are the same.
#[derive(Clone, Copy)]
pub(super) struct Trials<'a> {
    /// Trial that is only watched.
    pub(super) plain: &'a Trial,
    /// Trial with a clock for layers.
    pub(super) layered: &'a Trial,
    /// Trial with a clock for kernels; `None` on the CPU.
    pub(super) timed: Option<&'a Trial>,
}

/// Cost of the operations of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationRow {
    pub(super) name: String,
    pub(super) count: u64,
    /// Share of the time of a micro-batch, by the cost model.
    pub(super) share: f64,
    /// Floating-point operations of products.
    pub(super) operations: f64,
    /// Bytes that are read and written.
    pub(super) bytes: f64,
}

impl Profile {
    /// Puts the measurements together.
    pub(super) fn new(trials: &Trials<'_>, loading: LoadingSpeed, prediction: Option<&StepPrediction>) -> Self {
        let Trials { plain, layered, timed } = *trials;
        let warm = warm_steps(plain.steps());
        let mut times = TimeShares::default();
        warm.iter().for_each(|step| times.add_all(&step.times));
        let count = warm.len().max(1) as f64;
        let mean = |value: fn(&StepEvent) -> f64| warm.iter().map(|step| value(step)).sum::<f64>() / count;
        let seconds = warm.iter().map(|step| wall_seconds(step)).sum::<f64>();
        let features = &plain.plan.features;
        let hop_seconds = features.hop_length as f64 / f64::from(features.sample_rate);
        let frames = warm.iter().map(|step| step.frames).sum::<u64>();
        Self {
            schema_version: SCHEMA_VERSION,
            placement: plain.placement.clone(),
            steps: warm.len(),
            left_out: plain.steps().count() - warm.len(),
            seconds_per_step: seconds / count,
            times,
            audio_seconds_per_second: frames as f64 * hop_seconds / seconds.max(f64::MIN_POSITIVE),
            loading,
            padding: mean(|step| step.padding),
            micro_batches: mean(|step| step.micro_batches as f64),
            reads: mean(|step| f64::from(step.reads)),
            launches: mean_known(&warm, |step| step.launches),
            uploads: mean_known(&warm, |step| step.uploads),
            memory: MemoryProfile::new(plain, prediction),
            shapes: shapes(&plain.steps().collect::<Vec<_>>()),
            lanes: layered.plan.training.lanes,
            layers: layered.layers.clone(),
            operations: prediction.map(operations).unwrap_or_default(),
            layer_cost: extra_time(plain, layered),
            kernels: timed.map(|timed| KernelProfile::new(plain, timed)),
        }
    }
}

impl MemoryProfile {
    fn new(trial: &Trial, prediction: Option<&StepPrediction>) -> Self {
        let measured = |step: &StepEvent| Some(step.peak_bytes).filter(|peak| peak.0 > 0);
        let memory = trial.plan.memory.as_ref();
        let is_host = !trial.plan.training.async_errors;
        let planned = memory.map(|memory| memory.expected_peaks(is_host)).unwrap_or_default();
        let row = |step: &StepEvent| {
            let planned_bytes = step.shape.and_then(|shape| planned.of(shape));
            Some(StepMemory { step: step.step, peak_bytes: measured(step)?, planned_bytes })
        };
        let pools = trial.records.iter().rev().find_map(|record| match &record.event {
            Event::Pools { memory, .. } => Some(memory.clone()),
            _ => None,
        });
        let device = &trial.plan.config.device;
        let settings = BTreeMap::from([
            ("device.cuda_allocator".to_string(), serde_json::json!(device.cuda_allocator)),
            ("device.persistent_memory".to_string(), serde_json::json!(device.persistent_memory)),
        ]);
        let owner = |(owner, bytes): &(plimsoll_memory::Owner, Bytes)| {
            (serde_json::json!(owner).as_str().unwrap_or_default().to_string(), *bytes)
        };
        Self {
            peak_bytes: trial.steps().filter_map(measured).max(),
            planned_bytes: memory.map(plimsoll_recipes::memory_plan::MemoryPlan::peak),
            owners: prediction
                .map(|step| step.owners.iter().map(owner).chain(around(trial, step)).collect())
                .unwrap_or_default(),
            settings: if pools.is_some() { settings } else { BTreeMap::new() },
            pools,
            by_step: trial.steps().filter_map(row).collect(),
        }
    }
}

/// Returns what the planned peak has beside the owners of the step: memory of the process around it, and room in pools.
fn around(trial: &Trial, prediction: &StepPrediction) -> Vec<(String, Bytes)> {
    let Some(memory) = &trial.plan.memory else { return Vec::new() };
    let owned: u64 = prediction.owners.iter().map(|(_, bytes)| bytes.0).sum();
    let outside = memory.shares.outside_model;
    let room = Bytes(memory.peak().0.saturating_sub(owned + outside.0));
    let rows = [("program, caches and waiting batches", outside), ("room in pools", room)];
    rows.into_iter().filter(|(_, bytes)| bytes.0 > 0).map(|(name, bytes)| (name.to_string(), bytes)).collect()
}

impl KernelProfile {
    fn new(plain: &Trial, timed: &Trial) -> Self {
        let steps = timed.kernel_steps;
        let in_step = |sum: f64| sum / steps.max(1) as f64;
        let all: f64 = timed.kernels.iter().map(|kernel| kernel.seconds).sum();
        let row = |kernel: &KernelTime| KernelRow {
            name: kernel.name.clone(),
            count: in_step(kernel.count as f64),
            seconds: in_step(kernel.seconds),
            share: kernel.seconds / all.max(f64::MIN_POSITIVE),
            by_host: kernel.by_host as f64 / kernel.count.max(1) as f64,
        };
        Self {
            steps,
            seconds_per_step: in_step(all),
            cost: extra_time(plain, timed),
            rows: timed.kernels.iter().map(row).collect(),
        }
    }
}

/// Returns the mean of `value` over `steps`; `None` if one does not know it.
fn mean_known(steps: &[&StepEvent], value: impl Fn(&StepEvent) -> Option<u32>) -> Option<f64> {
    let sum = steps.iter().map(|step| value(step).map(f64::from)).sum::<Option<f64>>()?;
    Some(sum / steps.len().max(1) as f64)
}

fn shapes(steps: &[&StepEvent]) -> Vec<ShapeRow> {
    let mut by_shape: BTreeMap<BatchShape, Vec<&StepEvent>> = BTreeMap::new();
    for step in steps {
        if let Some(shape) = step.shape {
            by_shape.entry(shape).or_default().push(step);
        }
    }
    let row = |(shape, steps): (BatchShape, Vec<&StepEvent>)| ShapeRow {
        shape,
        steps: steps.len(),
        compile_seconds: steps.iter().map(|step| step.times.get(plimsoll_core::TimeOwner::Compile)).sum(),
        seconds_per_step: steps.iter().map(|step| wall_seconds(step)).sum::<f64>() / steps.len() as f64,
    };
    let mut rows: Vec<ShapeRow> = by_shape.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.steps));
    rows
}

fn operations(prediction: &StepPrediction) -> Vec<OperationRow> {
    let precision = prediction.bucket.choice.precision;
    let seconds = |cost: &plimsoll_memory::Cost| prediction.speed.seconds(cost, precision);
    let all: f64 = prediction.operations.iter().map(|operation| seconds(&operation.cost)).sum();
    let row = |operation: &plimsoll_memory::OperationCost| OperationRow {
        name: operation.name.to_string(),
        count: operation.count,
        share: seconds(&operation.cost) / all.max(f64::MIN_POSITIVE),
        operations: operation.cost.operations,
        bytes: operation.cost.bytes,
    };
    let mut rows: Vec<OperationRow> = prediction.operations.iter().map(row).collect();
    rows.sort_by(|a, b| b.share.total_cmp(&a.share));
    rows
}

/// Returns the median share by which a step of `layered` took longer than the same step of `plain`.
fn extra_time(plain: &Trial, layered: &Trial) -> f64 {
    let both = layered.steps().count().min(plain.steps().count());
    let pairs = plain.steps().zip(layered.steps()).take(both).skip(both / 3);
    let mut ratios: Vec<f64> =
        pairs.map(|(plain, layered)| own_seconds(layered) / own_seconds(plain).max(f64::MIN_POSITIVE)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).map_or(0.0, |ratio| ratio - 1.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns a profile of a GPU as `profile --json` prints it.
    fn printed() -> Value {
        json!({
            "schema_version": SCHEMA_VERSION, "placement": Placement::default(), "steps": 4, "left_out": 2,
            "seconds_per_step": 0.5, "times": {"compute": 2.0}, "audio_seconds_per_second": 90.0,
            "loading": {"batches": 4, "audio_seconds_per_second": 900.0}, "padding": 0.1, "micro_batches": 1.0,
            "reads": 1.0, "launches": 1400.0, "uploads": 3.0,
            "memory": {
                "peak_bytes": 90, "planned_bytes": 100, "owners": {"weights": 100}, "pools": null, "settings": {},
                "by_step": [{"step": 3, "peak_bytes": 90, "planned_bytes": null}],
            },
            "shapes": [], "lanes": 1, "layers": [], "kernels": null, "operations": [], "layer_cost": 0.1,
        })
    }

    /// Lists the paths of all fields of `value`.
    fn fields(value: &Value, at: &str) -> Vec<String> {
        let inner = |(name, value): (&String, &Value)| {
            let path = format!("{at}/{name}");
            let below =
                if ["times", "owners", "settings"].contains(&name.as_str()) { vec![] } else { fields(value, &path) };
            [vec![path], below].concat()
        };
        value.as_object().into_iter().flatten().flat_map(inner).collect()
    }

    #[test]
    fn a_profile_with_a_missing_or_renamed_field_is_refused() {
        let read = |value: &Value| serde_json::from_str::<Profile>(&value.to_string());
        assert_eq!(json!(read(&printed()).unwrap()), printed());
        for path in fields(&printed(), "") {
            let (mut missing, mut renamed) = (printed(), printed());
            let (above, name) = path.rsplit_once('/').unwrap();
            missing.pointer_mut(above).unwrap().as_object_mut().unwrap().remove(name);
            let object = renamed.pointer_mut(above).unwrap().as_object_mut().unwrap();
            let value = object.remove(name).unwrap();
            object.insert(format!("{name}_renamed"), value);
            for changed in [missing, renamed] {
                assert!(read(&changed).unwrap_err().to_string().contains(name), "{path}");
            }
        }
    }

    #[test]
    fn short_names_say_operation_and_method() {
        for (name, expected) in [
            (
                "MatmulEntry | TensorArgs | DynamicSize | () | SimpleMatmulFamily | UnitPartitioner",
                "MatmulEntry SimpleMatmulFamily",
            ),
            ("KernelBinop | AddOp", "KernelBinop AddOp"),
            ("UnaryFloat | BasicFloatUnary", "UnaryFloat BasicFloatUnary"),
            ("ReduceKernel | TensorArgs", "ReduceKernel"),
            ("CopyKernel", "CopyKernel"),
        ] {
            let row = KernelRow { name: name.into(), count: 1.0, seconds: 1.0, share: 1.0, by_host: 0.0 };
            assert_eq!(row.short_name(), expected);
        }
    }
}
