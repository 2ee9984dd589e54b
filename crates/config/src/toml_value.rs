//! Converts TOML to the values of settings.

use config::{Map, Value, ValueKind};
use toml::de::DeValue;

/// Parses `text` as a TOML value; `None` if it is no TOML value.
pub(super) fn toml_value(text: &str) -> Option<ValueKind> {
    DeValue::parse(text).ok().map(|value| from_toml(value.get_ref()))
}

/// Converts a parsed TOML value. Entries of a table are left out, because the reader of files collects table entries.
pub(super) fn from_toml(value: &DeValue<'_>) -> ValueKind {
    match value {
        DeValue::String(text) => ValueKind::String(text.to_string()),
        DeValue::Integer(n) => match i128::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => i64::try_from(n).map_or(ValueKind::I128(n), ValueKind::I64),
            Err(_) => ValueKind::Float(f64::INFINITY),
        },
        DeValue::Float(n) => ValueKind::Float(n.as_str().parse().unwrap_or(f64::NAN)),
        DeValue::Boolean(value) => ValueKind::Boolean(*value),
        DeValue::Datetime(date) => ValueKind::String(date.to_string()),
        DeValue::Array(items) => {
            ValueKind::Array(items.iter().map(|item| Value::new(None, from_toml(item.get_ref()))).collect())
        }
        DeValue::Table(_) => ValueKind::Table(Map::new()),
    }
}
