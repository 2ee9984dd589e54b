//! Reads the facts about a run from its folder.

use std::fs;
use std::path::Path;

use plimsoll_core::{Bytes, Event};
use serde::Deserialize;
use toml::Value;

use super::facts::{BucketFacts, PlanFacts, RunFacts};
use crate::{RecordError, RunSetup, read_records};

/// Start of the name of the device of a run on the CPU.
const CPU: &str = "the CPU";

impl RunFacts {
    /// Reads the facts that the folder of a run holds: its record, configuration and plan. A plan that is missing or
    /// cannot be read leaves its facts unknown. Host, loading, alternatives and samples stay unknown.
    ///
    /// # Errors
    /// [`RecordError`] if `metrics.jsonl` cannot be read.
    pub fn read(folder: &Path) -> Result<Self, RecordError> {
        let setup = RunSetup::read(folder, &mut Vec::new());
        let (mut steps, mut events) = (Vec::new(), Vec::new());
        for record in read_records(&folder.join("metrics.jsonl"))? {
            match record.event {
                Event::Step(step) => steps.push(step),
                other => events.push(other),
            }
        }
        let whole = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let name = folder.file_name().or(whole.file_name());
        Ok(Self {
            name: name.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned()),
            steps,
            events,
            on_gpu: setup.device.map(|device| !device.starts_with(CPU)),
            config: setup.config,
            total_steps: setup.total_steps,
            hop_seconds: setup.hop_seconds,
            plan: read_plan(&folder.join("plan.toml")),
            ..Self::default()
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PlanFile {
    data: DataTable,
    features: FeatureTable,
    memory: MemoryTable,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DataTable {
    batches_in_epoch: Option<u64>,
    padded_shapes: Option<u64>,
    training_seconds: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FeatureTable {
    n_mels: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MemoryTable {
    plan: MemoryPlan,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MemoryPlan {
    budget: Option<u64>,
    peak: Option<u64>,
    state: StateTable,
    buckets: Vec<BucketTable>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StateTable {
    form: Option<String>,
}

/// A bucket of the plan. Its sizes have no honest default.
#[derive(Deserialize)]
struct BucketTable {
    micro_batch: u64,
    accumulation: u64,
    bucket: ShapeTable,
    choice: ChoiceTable,
}

#[derive(Deserialize)]
struct ShapeTable {
    utterances: u64,
    frames: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ChoiceTable {
    remat: Option<Value>,
}

fn read_plan(path: &Path) -> Option<PlanFacts> {
    let PlanFile { data, features, memory: MemoryTable { plan } } =
        toml::from_str(&fs::read_to_string(path).ok()?).ok()?;
    Some(PlanFacts {
        budget: plan.budget.map(Bytes),
        peak: plan.peak.map(Bytes),
        batches_in_epoch: data.batches_in_epoch,
        padded_shapes: data.padded_shapes,
        training_seconds: data.training_seconds,
        n_mels: features.n_mels,
        optimizer_state: plan.state.form,
        buckets: plan.buckets.into_iter().map(bucket).collect(),
    })
}

fn bucket(table: BucketTable) -> BucketFacts {
    let BucketTable { micro_batch, accumulation, bucket, choice } = table;
    let remat = choice.remat.map_or_else(
        || "none".into(),
        |remat| match remat {
            Value::String(name) => name,
            other => other.to_string(),
        },
    );
    BucketFacts { micro_batch, accumulation, utterances: bucket.utterances, frames: bucket.frames, remat }
}
