//! The table of all keys, the source of the documentation, of `config print` and of "did you mean".

use std::sync::LazyLock;

use super::aliases::{ALIASES, Alias};
use super::key::{Key, Section};
use super::schema::{AugmentConfig, DataConfig, DeviceConfig, FeaturesConfig, ModelConfig, RunConfig, TrainingConfig};

/// Sections of the configuration, in the order of the documentation.
pub const SECTIONS: [Section; 7] = [
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

/// Iterates over every key, in the order of the documentation.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

/// Finds the key with the name `name`; `None` if there is none. Older names are not searched.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.name == name)
}

/// Returns whether there is a section with the name `name`.
pub(super) fn is_section(name: &str) -> bool {
    !name.is_empty() && SECTIONS.iter().any(|section| section.name == name)
}

impl Key {
    /// Returns the default value of the key, or `None` for a key that may be left out.
    pub fn default(&self) -> Option<&'static toml::Value> {
        self.value_in(&DEFAULTS)
    }

    /// Finds the value of the key in `table`, a configuration as TOML; `None` if the table does not have it.
    pub fn value_in<'t>(&self, table: &'t toml::Table) -> Option<&'t toml::Value> {
        match self.section() {
            "" => table.get(self.leaf()),
            section => table.get(section)?.get(self.leaf()),
        }
    }

    /// Iterates over the older names of the key.
    pub fn aliases(&self) -> impl Iterator<Item = &'static Alias> {
        let name = self.name;
        ALIASES.iter().filter(move |alias| alias.key == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_accepts_its_default() {
        for key in keys() {
            assert!(key.section().is_empty() || is_section(key.section()), "{}", key.name);
            assert!(key.about.ends_with('.') && !key.about.contains('|'), "{}: {}", key.name, key.about);
            if let Some(default) = key.default() {
                let value: config::Value = default.clone().try_into().unwrap();
                assert_eq!(key.kind.mismatch(&value.kind), None, "{} = {default}", key.name);
            }
        }
    }

    #[test]
    fn every_field_has_a_key() {
        let json = serde_json::to_value(RunConfig::default()).unwrap();
        let fields: usize =
            json.as_object().unwrap().values().map(|v| v.as_object().map_or(1, serde_json::Map::len)).sum();
        assert_eq!(keys().count(), fields);
    }
}
