//! Writes a configuration as TOML or JSON, with the origin of each value.

use plimsoll_core::{Bytes, Seconds};

use super::key::Key;
use super::keys::SECTIONS;
use super::kind::Kind;
use super::load::Loaded;

/// Formats the whole configuration as TOML with comments: the help text of each key and the origin of each value. The
/// output can be loaded again, and gives equal values.
pub fn to_toml(loaded: &Loaded) -> String {
    let values = toml::Table::try_from(&loaded.config).expect("a configuration holds plain values");
    let mut text = String::from("# The whole configuration. After each value: where it came from.\n");
    for warning in &loaded.warnings {
        text += &format!("# note: {warning}\n");
    }
    for section in &SECTIONS {
        text += &match section.name {
            "" => "\n".to_string(),
            name => format!("\n# {}\n[{name}]\n", section.about),
        };
        for key in section.keys {
            text += &format!("# {}\n", key.about);
            text += &match key.value_in(&values) {
                Some(value) => {
                    format!("{} = {}  # {}\n", key.leaf(), format_value(key, value), loaded.provenance.origin(key.name))
                }
                None => format!("# {} =  (not given; takes {})\n", key.leaf(), key.kind),
            };
        }
    }
    text
}

/// Formats the whole configuration as JSON, with the origin of each value that is set.
pub fn to_json(loaded: &Loaded) -> String {
    let origins = loaded.provenance.0.iter().map(|(key, origin)| ((*key).to_string(), origin.to_string().into()));
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    let whole = serde_json::json!({
        "config": loaded.config,
        "from": serde_json::Map::from_iter(origins),
        "warnings": warnings,
    });
    format!("{whole:#}\n")
}

/// Formats `value` as a user would write it: times and amounts of memory with their units.
pub(super) fn format_value(key: &Key, value: &toml::Value) -> String {
    match (key.kind, value) {
        (Kind::Time(_), toml::Value::Float(seconds)) => format!("\"{}\"", exact_time(Seconds(*seconds))),
        (Kind::Memory(_), toml::Value::Integer(bytes)) => match exact_memory(Bytes(bytes.unsigned_abs())) {
            Some(text) => format!("\"{text}\""),
            None => bytes.to_string(),
        },
        // Debug writes 1e-8; Display would write 0.00000001.
        (_, toml::Value::Float(number)) => format!("{number:?}"),
        (_, value) => value.to_string(),
    }
}

/// Formats `time` with all digits; `Display` of `Seconds` rounds.
fn exact_time(time: Seconds) -> String {
    format!("{}s", time.0)
}

/// Formats `amount` in the largest unit that gives a whole number; `None` if it is 0 or not a multiple of 1 KiB.
/// `Display` of `Bytes` rounds.
fn exact_memory(amount: Bytes) -> Option<String> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let (unit, shift) = units.into_iter().find(|(_, shift)| amount.0.trailing_zeros() >= *shift)?;
    (amount.0 > 0).then(|| format!("{}{unit}", amount.0 >> shift))
}
