//! Environment variables: `PLIMSOLL_DATA__BATCH_SIZE` sets `data.batch_size`.

use super::origin::ValueOrigin;
use super::setting::{Raw, Written};
use super::variable::PREFIX;

/// Variables that begin like ours and set no key, with what they are for.
pub const RESERVED: &[(&str, &str)] = &[
    ("PLIMSOLL_LOG", "what the program logs"),
    ("PLIMSOLL_LONG", "runs the long tests too"),
    ("PLIMSOLL_UPDATE_DOCS", "has a test rewrite docs/configuration.md"),
];

/// The settings among the variables of `environment`, by name; an empty variable is no setting.
pub(super) fn read(environment: impl Iterator<Item = (String, String)>) -> Vec<Written> {
    let ours = environment.filter_map(|(variable, value)| {
        let name = variable.strip_prefix(PREFIX)?;
        if is_reserved(&variable) || value.is_empty() {
            return None;
        }
        let name = name.replace("__", ".").to_lowercase();
        Some(Written { name, value: Raw::Text(value), origin: ValueOrigin::Environment(variable) })
    });
    let mut settings: Vec<Written> = ours.collect();
    settings.sort_by(|a, b| a.name.cmp(&b.name));
    settings
}

/// Whether `variable` has another use.
pub(super) fn is_reserved(variable: &str) -> bool {
    RESERVED.iter().any(|(name, _)| *name == variable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::variable::variable;

    #[test]
    fn every_key_has_a_variable_of_its_own() {
        for key in crate::config::keys::keys() {
            let variable = variable(key.name);
            assert!(!is_reserved(&variable), "{variable}");
            let read = read([(variable, "1".to_string())].into_iter());
            assert_eq!(read[0].name, key.name);
        }
    }
}
