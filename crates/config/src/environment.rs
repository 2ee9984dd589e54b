//! Environment variables: `PLIMSOLL_DATA__BATCH_SIZE` sets `data.batch_size`.

use super::origin::ValueOrigin;
use super::setting::{RawSetting, RawValue};
use super::variable::PREFIX;

/// Variables that begin with `PLIMSOLL_` but set no key, each with its purpose.
pub const RESERVED_VARIABLES: &[(&str, &str)] = &[
    ("PLIMSOLL_LOG", "selects what is logged"),
    ("PLIMSOLL_LONG", "turns on the long tests"),
    ("PLIMSOLL_UPDATE_DOCS", "makes a test rewrite docs/configuration.md"),
];

/// Reads the settings in `environment`, sorted by key. A variable with an empty value counts as not set.
pub(super) fn read(environment: impl Iterator<Item = (String, String)>) -> Vec<RawSetting> {
    let ours = environment.filter_map(|(variable, value)| {
        let name = variable.strip_prefix(PREFIX)?;
        if is_reserved(&variable) || value.is_empty() {
            return None;
        }
        let name = name.replace("__", ".").to_lowercase();
        Some(RawSetting { name, value: RawValue::Text(value), origin: ValueOrigin::Environment(variable) })
    });
    let mut settings: Vec<RawSetting> = ours.collect();
    settings.sort_by(|a, b| a.name.cmp(&b.name));
    settings
}

/// Returns whether `variable` is reserved, so that it sets no key.
pub(super) fn is_reserved(variable: &str) -> bool {
    RESERVED_VARIABLES.iter().any(|(name, _)| *name == variable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variable::variable_name;

    #[test]
    fn every_key_has_a_variable_of_its_own() {
        for key in crate::keys::keys() {
            let variable = variable_name(key.name);
            assert!(!is_reserved(&variable), "{variable}");
            let read = read([(variable, "1".to_string())].into_iter());
            assert_eq!(read[0].name, key.name);
        }
    }
}
