//! Lenient access to JSON objects: unknown keys are ignored, and numbers may be written as texts.

use plimsoll_core::Seconds;
use serde_json::{Map, Value};

use super::builder::shortened;
use crate::issue::IssueKind;

/// JSON object whose unknown keys are ignored, and whose numbers may be written as texts.
#[derive(Debug, Default)]
pub(super) struct Object(Map<String, Value>);

impl Object {
    /// Parses one line as a JSON object.
    pub(super) fn read(line: &str) -> Result<Self, IssueKind> {
        match serde_json::from_str(line) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(other) => Err(IssueKind::NotJson(format!("{} was found", type_name(&other)))),
            // The parser sees one line and always says `line 1`, which would contradict our own line number.
            Err(error) => {
                Err(IssueKind::NotJson(shortened(&error.to_string().replace("at line 1 column", "at column"))))
            }
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the first of `keys` that exists and is not null, with its value; `None` if there is none.
    fn first(&self, keys: &[&'static str]) -> Option<(&'static str, &Value)> {
        keys.iter().find_map(|&key| self.0.get(key).filter(|value| !value.is_null()).map(|value| (key, value)))
    }

    /// Returns the text under the first of `keys` that exists; `None` if none exists. Numbers and booleans become text.
    pub(super) fn text(&self, keys: &[&'static str]) -> Result<Option<String>, IssueKind> {
        match self.first(keys) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((key, value @ (Value::Array(_) | Value::Object(_)))) => {
                Err(IssueKind::WrongType { key, found: type_name(value) })
            }
            Some((_, other)) => Ok(Some(other.to_string())),
        }
    }

    /// Returns the required text under the first of `keys` that exists. The issue of a missing text names the first
    /// key, or that whose value is null.
    pub(super) fn required_text(&self, keys: &[&'static str]) -> Result<String, IssueKind> {
        let missing = || match keys.iter().find(|key| self.has(key)) {
            Some(key) => IssueKind::WrongType { key, found: "null" },
            None => IssueKind::MissingKey(keys[0]),
        };
        self.text(keys)?.ok_or_else(missing)
    }

    /// Returns the finite number under `key`, which may be written as a text and may be negative; `None` if it is
    /// missing or blank.
    pub(super) fn number(&self, key: &'static str) -> Result<Option<f64>, IssueKind> {
        let Some(written) = self.text(&[key])?.filter(|written| !written.trim().is_empty()) else { return Ok(None) };
        number(key, &written).map(Some)
    }

    /// Returns the number of seconds under `key`, at least zero; `None` if it is missing or blank.
    pub(super) fn seconds(&self, key: &'static str) -> Result<Option<Seconds>, IssueKind> {
        match self.number(key)? {
            Some(value) if value < 0.0 => Err(IssueKind::InvalidTime { key, value: value.to_string() }),
            value => Ok(value.map(Seconds)),
        }
    }

    /// Removes and returns the object under `key`; `None` if the value is missing or not an object.
    pub(super) fn object(&mut self, key: &str) -> Option<Self> {
        match self.0.remove(key) {
            Some(Value::Object(map)) => Some(Self(map)),
            _ => None,
        }
    }

    /// Removes and returns the objects in the list under a key. Other items are ignored.
    pub(super) fn objects(&mut self, key: &str) -> Vec<Self> {
        let Some(Value::Array(list)) = self.0.remove(key) else { return vec![] };
        let object = |value| if let Value::Object(map) = value { Some(Self(map)) } else { None };
        list.into_iter().filter_map(object).collect()
    }

    /// Returns the channel under `key`, counted from 0: a number, also in a list or a text; `None` for null, other texts,
    /// yes and no, and lists of none or several, which mean all channels.
    pub(super) fn channel(&self, key: &str) -> Result<Option<u16>, IssueKind> {
        let value = match self.0.get(key) {
            Some(Value::Array(list)) if list.len() == 1 => &list[0],
            Some(Value::Array(_)) | None => return Ok(None),
            Some(value) => value,
        };
        let number = match value {
            Value::Null | Value::Bool(_) => return Ok(None),
            Value::String(text) if text.parse::<i64>().is_err() => return Ok(None),
            Value::String(text) => text.parse().ok(),
            value => value.as_u64(),
        };
        let channel = number.and_then(|number| u16::try_from(number).ok());
        channel.map(Some).ok_or_else(|| IssueKind::InvalidChannel(shortened(&value.to_string())))
    }

    /// Returns the non-negative integers under a key: a list or a single integer. Other items are ignored.
    pub(super) fn counts(&self, key: &str) -> Vec<u64> {
        match self.0.get(key) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_u64).collect(),
            Some(value) => value.as_u64().into_iter().collect(),
            None => vec![],
        }
    }
}

/// Parses `written` as a finite number; `key` is for the issue.
pub(super) fn number(key: &'static str, written: &str) -> Result<f64, IssueKind> {
    let value = written.trim().parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| IssueKind::InvalidTime { key, value: format!("`{}`", shortened(written)) })
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
