//! The table of all keys: the one source of the documentation, of `config print`, and of "did you mean".

use std::sync::LazyLock;

use super::aliases::{ALIASES, Alias};
use super::key::{Key, Section};
use super::schema::{AugmentConfig, DataConfig, DeviceConfig, FeaturesConfig, ModelConfig, RunConfig, TrainingConfig};

/// Every section, in the order of the documentation.
pub const KEYS: [Section; 7] = [
    Section { name: "", about: RunConfig::ABOUT, keys: RunConfig::KEYS },
    Section { name: "device", about: DeviceConfig::ABOUT, keys: DeviceConfig::KEYS },
    Section { name: "data", about: DataConfig::ABOUT, keys: DataConfig::KEYS },
    Section { name: "features", about: FeaturesConfig::ABOUT, keys: FeaturesConfig::KEYS },
    Section { name: "augment", about: AugmentConfig::ABOUT, keys: AugmentConfig::KEYS },
    Section { name: "model", about: ModelConfig::ABOUT, keys: ModelConfig::KEYS },
    Section { name: "training", about: TrainingConfig::ABOUT, keys: TrainingConfig::KEYS },
];

static DEFAULTS: LazyLock<toml::Table> =
    LazyLock::new(|| toml::Table::try_from(RunConfig::default()).expect("the defaults are plain values"));

/// Every key, in the order of the documentation.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().flat_map(|section| section.keys)
}

/// The key called `name`, under its own name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

/// Whether `name` is a section.
pub(super) fn is_section(name: &str) -> bool {
    !name.is_empty() && KEYS.iter().any(|section| section.name == name)
}

impl Key {
    /// Its value when nobody sets it, or nothing where it may stay away.
    pub fn default(&self) -> Option<&'static toml::Value> {
        self.value_in(&DEFAULTS)
    }

    /// Its value in a configuration written out as TOML.
    pub fn value_in<'t>(&self, table: &'t toml::Table) -> Option<&'t toml::Value> {
        match self.section() {
            "" => table.get(self.leaf()),
            section => table.get(section)?.get(self.leaf()),
        }
    }

    /// Its older names.
    pub fn aliases(&self) -> impl Iterator<Item = &'static Alias> {
        let name = self.name;
        ALIASES.iter().filter(move |alias| alias.key == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_fits_its_own_key() {
        for key in keys() {
            assert!(key.section().is_empty() || is_section(key.section()), "{}", key.name);
            assert!(key.about.ends_with('.') && !key.about.contains('|'), "{}: {}", key.name, key.about);
            if let Some(default) = key.default() {
                let value: config::Value = default.clone().try_into().unwrap();
                assert_eq!(key.kind.fault(&value.kind), None, "{} = {default}", key.name);
            }
        }
    }

    #[test]
    fn no_key_is_missing_from_the_table() {
        let json = serde_json::to_value(RunConfig::default()).unwrap();
        let fields: usize =
            json.as_object().unwrap().values().map(|v| v.as_object().map_or(1, serde_json::Map::len)).sum();
        assert_eq!(keys().count(), fields);
    }
}
