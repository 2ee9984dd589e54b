//! A configuration written out: as TOML with where each value came from, or as JSON.

use plimsoll_core::{Bytes, Seconds};

use super::key::Key;
use super::keys::KEYS;
use super::kind::Kind;
use super::load::Loaded;

/// The whole configuration as TOML that can be loaded again.
pub fn to_toml(loaded: &Loaded) -> String {
    let values = toml::Table::try_from(&loaded.config).expect("a configuration holds plain values");
    let mut text = String::from("# The whole configuration. After each value: where it came from.\n");
    for warning in &loaded.warnings {
        text += &format!("# note: {warning}\n");
    }
    for section in &KEYS {
        text += &match section.name {
            "" => "\n".to_string(),
            name => format!("\n# {}\n[{name}]\n", section.about),
        };
        for key in section.keys {
            text += &format!("# {}\n", key.about);
            text += &match key.value_in(&values) {
                Some(value) => {
                    format!("{} = {}  # {}\n", key.leaf(), spell(key, value), loaded.provenance.origin(key.name))
                }
                None => format!("# {} =  (not given; takes {})\n", key.leaf(), key.kind),
            };
        }
    }
    text
}

/// The whole configuration as JSON, with the place of every value that is not a default.
pub fn to_json(loaded: &Loaded) -> String {
    let places = loaded.provenance.0.iter().map(|(key, origin)| ((*key).to_string(), origin.to_string().into()));
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    let whole = serde_json::json!({
        "config": loaded.config,
        "from": serde_json::Map::from_iter(places),
        "warnings": warnings,
    });
    format!("{whole:#}\n")
}

/// A value as people write it: times and memory with their units.
pub(super) fn spell(key: &Key, value: &toml::Value) -> String {
    match (key.kind, value) {
        (Kind::Time(_), toml::Value::Float(seconds)) => format!("\"{}\"", exact_time(Seconds(*seconds))),
        (Kind::Memory(_), toml::Value::Integer(bytes)) => match exact_memory(Bytes(bytes.unsigned_abs())) {
            Some(text) => format!("\"{text}\""),
            None => bytes.to_string(),
        },
        // Rust's own way to write it: 1e-8, and not 0.00000001.
        (_, toml::Value::Float(number)) => format!("{number:?}"),
        (_, value) => value.to_string(),
    }
}

/// Not `Seconds`' own words, which round.
fn exact_time(time: Seconds) -> String {
    format!("{}s", time.0)
}

/// Not `Bytes`' own words, which round: the largest unit that leaves a whole number.
fn exact_memory(amount: Bytes) -> Option<String> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let (unit, shift) = units.into_iter().find(|(_, shift)| amount.0.trailing_zeros() >= *shift)?;
    (amount.0 > 0).then(|| format!("{}{unit}", amount.0 >> shift))
}
