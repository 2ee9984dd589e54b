//! Setup of a run, read from its `plan.toml` and `config.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use plimsoll_core::PlanHeader;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// Setup of a run, as far as the files in its folder contain it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunSetup {
    /// Task of the run, such as `asr`; `None` if not recorded.
    pub task: Option<String>,
    /// Device that the run trains on; `None` if not recorded.
    pub device: Option<String>,
    /// Seed of all random numbers of the run; `None` if not recorded.
    pub seed: Option<u64>,
    /// Commit from which the program was built; `None` if not recorded.
    pub commit: Option<String>,
    /// Number of parameters of the model; `None` if not recorded.
    pub parameters: Option<u64>,
    /// Number of steps until the end of the run; `None` if not known in advance.
    pub total_steps: Option<u64>,
    /// Seconds of audio per feature frame; `None` if not recorded.
    pub hop_seconds: Option<f64>,
    /// Configuration of the run: each value under its full key, such as `training.steps`.
    pub config: BTreeMap<String, String>,
}

/// Part of `plan.toml` that is read: its header, and the tables that contained the facts of the header in older files.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PlanFile {
    #[serde(flatten)]
    header: PlanHeader,
    training: OldTraining,
    features: OldFeatures,
    config: Option<Table>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OldTraining {
    total_steps: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OldFeatures {
    hop_length: f64,
    sample_rate: f64,
}

impl RunSetup {
    /// Reads the files in the folder of a run. Problems are added to `notes`.
    pub(crate) fn read(folder: &Path, notes: &mut Vec<String>) -> Self {
        let PlanFile { header, training, features, config } = parsed(folder, "plan.toml", notes).unwrap_or_default();
        // The plan has the configuration too, in numbers; the file has it as people write it.
        let config: Table = parsed(folder, "config.toml", notes).or(config).unwrap_or_default();
        let hop_seconds = header.hop_seconds.unwrap_or(features.hop_length / features.sample_rate);
        Self {
            task: header.task.or_else(|| Some(config.get("task")?.as_str()?.to_string())),
            device: header.device,
            seed: header.seed,
            commit: header.commit,
            parameters: header.parameters,
            total_steps: header.total_steps.or(training.total_steps),
            hop_seconds: Some(hop_seconds).filter(|seconds| seconds.is_finite()),
            config: flat(&config),
        }
    }
}

/// Parses the file `name` in the folder of a run; `None` if it is missing or cannot be read, which is added to `notes`.
fn parsed<T: DeserializeOwned>(folder: &Path, name: &str, notes: &mut Vec<String>) -> Option<T> {
    let text = match fs::read_to_string(folder.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            notes.push(format!("cannot read {name}: {error}"));
            return None;
        }
    };
    toml::from_str(&text).map_err(|error| notes.push(format!("cannot read {name}: {}", error.message()))).ok()
}

/// Collects every value of `table` that is not a table, under its full key, such as `training.steps`.
fn flat(table: &Table) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) => values.extend(flat(inner).into_iter().map(|(k, v)| (format!("{key}.{k}"), v))),
            Value::String(text) => drop(values.insert(key.clone(), text.clone())),
            other => drop(values.insert(key.clone(), other.to_string())),
        }
    }
    values
}
