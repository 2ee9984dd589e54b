//! Change of one key of the configuration.

use std::fmt;

use serde::Serialize;

/// Change of one key of the configuration.
///
/// ```
/// use plimsoll_monitor::advice::Change;
///
/// let change = Change { key: "data.num_workers".into(), from: Some("2".into()), to: "5".into() };
/// assert_eq!(change.to_string(), "data.num_workers = 2 -> 5");
/// let change = Change { key: "data.cache_dir".into(), from: None, to: "cache".into() };
/// assert_eq!(change.to_string(), "data.cache_dir = (default) -> \"cache\"");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Full key, such as `data.num_workers`.
    pub key: String,
    /// Value of the run, without quotation marks; `None` if the configuration does not set the key.
    pub from: Option<String>,
    /// Proposed value, without quotation marks.
    pub to: String,
}

impl Change {
    /// Returns the change as the command line takes it after `--set`, such as `data.num_workers=5`.
    pub fn setting(&self) -> String {
        format!("{}={}", self.key, self.to)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.as_deref().map_or("(default)".into(), as_toml);
        write!(f, "{} = {from} -> {}", self.key, as_toml(&self.to))
    }
}

/// Formats a value as TOML: numbers, truth values and lists as they are, everything else in quotation marks.
fn as_toml(value: &str) -> String {
    let is_plain = value.parse::<f64>().is_ok() || ["true", "false"].contains(&value) || value.starts_with('[');
    if is_plain { value.into() } else { format!("{value:?}") }
}
