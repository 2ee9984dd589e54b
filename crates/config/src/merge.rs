//! Merges the layers of a configuration (defaults, file, environment, command line) with the `config` crate.
//!
//! Serde reads the result, because the `config` crate itself would convert values of a wrong type, such as 16.7 to 16.

use config::{Config, Map, Source, Value, ValueKind};

use super::error::ConfigError;
use super::key::Key;
use super::keys;
use super::origin::{Layer, Provenance};
use super::schema::RunConfig;
use super::setting::Setting;

/// Settings of one layer, in the form that the `config` crate takes.
#[derive(Clone, Debug)]
struct LayerSource(Map<String, Value>);

impl Source for LayerSource {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// Merges the defaults and `settings`, and returns the configuration with the origin of each value.
pub(super) fn merge(settings: &[Setting]) -> Result<(RunConfig, Provenance), ConfigError> {
    let failed = |error| ConfigError::Merge(Box::new(error));
    let mut builder = Config::builder().add_source(Config::try_from(&RunConfig::default()).map_err(failed)?);
    for layer in [Layer::File, Layer::Environment, Layer::CommandLine] {
        builder = builder.add_source(layer_source(settings, layer));
    }
    let merged = builder.build().map_err(failed)?;
    let provenance = provenance(settings, &merged);
    let table = toml_table(&merged.cache);
    // Not `merged.try_deserialize`: the `config` crate rounds 16.7 to 16 and reads "true" as true.
    let config = table.try_into().map_err(ConfigError::Deserialize)?;
    Ok((config, provenance))
}

/// Collects the settings of one layer as a source for the `config` crate.
///
/// Each value is marked with the index of its setting, so that the origin of a value is still known after the merge.
fn layer_source(settings: &[Setting], layer: Layer) -> LayerSource {
    let numbered = settings.iter().enumerate().filter(|(_, setting)| setting.origin.layer() == layer);
    let value = |(number, setting): (usize, &Setting)| {
        (setting.key.name.to_string(), Value::new(Some(&number.to_string()), setting.value.clone()))
    };
    LayerSource(numbered.map(value).collect())
}

fn provenance(settings: &[Setting], merged: &Config) -> Provenance {
    let origin = |key: &Key| {
        let value = value_at(&merged.cache, key)?;
        let number: usize = value.origin()?.parse().ok()?;
        Some((key.name, settings[number].origin.clone()))
    };
    Provenance(keys().filter_map(origin).collect())
}

fn value_at<'v>(root: &'v Value, key: &Key) -> Option<&'v Value> {
    let get = |value: &'v Value, name: &str| match &value.kind {
        ValueKind::Table(table) => table.get(name),
        _ => None,
    };
    match key.section() {
        "" => get(root, key.leaf()),
        section => get(get(root, section)?, key.leaf()),
    }
}

fn toml_table(root: &Value) -> toml::Table {
    match &root.kind {
        ValueKind::Table(table) => {
            table.iter().filter_map(|(name, value)| Some((name.clone(), toml_value(value)?))).collect()
        }
        _ => toml::Table::new(),
    }
}

/// Converts `value` to TOML. TOML has no null, so null values are left out.
fn toml_value(value: &Value) -> Option<toml::Value> {
    Some(match &value.kind {
        ValueKind::Nil => return None,
        ValueKind::Boolean(truth) => (*truth).into(),
        ValueKind::I64(n) => (*n).into(),
        ValueKind::I128(n) => whole(i64::try_from(*n).ok(), *n as f64),
        ValueKind::U64(n) => whole(i64::try_from(*n).ok(), *n as f64),
        ValueKind::U128(n) => whole(i64::try_from(*n).ok(), *n as f64),
        ValueKind::Float(n) => (*n).into(),
        ValueKind::String(text) => text.clone().into(),
        ValueKind::Array(items) => toml::Value::Array(items.iter().filter_map(toml_value).collect()),
        ValueKind::Table(_) => toml_table(value).into(),
    })
}

/// Converts a whole number to TOML. `fits` is the number if a TOML integer can hold it; else the result is the float
/// `approximate`, which serde rejects for an integer.
fn whole(fits: Option<i64>, approximate: f64) -> toml::Value {
    fits.map_or(toml::Value::Float(approximate), toml::Value::Integer)
}
