//! What a run was meant to do: its `plan.toml` and `config.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::Serialize;
use toml::{Table, Value};

/// What a run was meant to do, as far as its folder says.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outline {
    /// The task, such as `asr`.
    pub task: Option<String>,
    /// The device that it trains on.
    pub device: Option<String>,
    /// Where its randomness starts.
    pub seed: Option<u64>,
    /// The commit that its program was built from.
    pub commit: Option<String>,
    /// Parameters of the model.
    pub parameters: Option<u64>,
    /// Steps until its end, where they can be known.
    pub total_steps: Option<u64>,
    /// Seconds of audio that a frame stands for.
    pub hop_seconds: Option<f64>,
    /// The configuration, each value under its whole key, such as `training.steps`.
    pub config: BTreeMap<String, String>,
}

impl Outline {
    /// Reads it from a run's folder; what cannot be read is added to `notes`.
    pub(super) fn read(folder: &Path, notes: &mut Vec<String>) -> Self {
        let plan = table(folder, "plan.toml", notes).unwrap_or_default();
        // The plan holds the configuration too, in numbers; the file has it as people write it.
        let config =
            table(folder, "config.toml", notes).or_else(|| plan.get("config")?.as_table().cloned()).unwrap_or_default();
        let text = |table: &Table, key| at(table, key).and_then(Value::as_str).map(String::from);
        let length = |key| at(&plan, key).and_then(number);
        let count = |key| at(&plan, key).and_then(Value::as_integer).and_then(|count| u64::try_from(count).ok());
        let hop_seconds =
            length("features.hop_length").zip(length("features.sample_rate")).map(|(hop, rate)| hop / rate);
        Self {
            task: text(&config, "task"),
            device: text(&plan, "device"),
            seed: count("seed"),
            commit: text(&plan, "commit"),
            parameters: count("parameters"),
            total_steps: count("training.total_steps"),
            hop_seconds: hop_seconds.filter(|seconds| seconds.is_finite()),
            config: flat(&config),
        }
    }
}

/// A file of the folder, where it is there and can be read.
fn table(folder: &Path, name: &str, notes: &mut Vec<String>) -> Option<Table> {
    let text = match fs::read_to_string(folder.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => {
            notes.push(format!("{name} cannot be read: {error}"));
            return None;
        }
    };
    let table = text.parse::<Table>();
    table.map_err(|error| notes.push(format!("{name} is no TOML: {}", error.message()))).ok()
}

/// The value under a key such as `training.total_steps`.
fn at<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = table.get(first)?;
    rest.map_or(Some(value), |rest| at(value.as_table()?, rest))
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// Each value that is no table, under its whole key.
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
