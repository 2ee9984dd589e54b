//! JSON objects of which only some keys matter, and whose writers disagree about types.

use plimsoll_core::Seconds;
use serde_json::{Map, Value};

use super::gathering::clipped;
use super::trouble::Trouble;

/// An object.
#[derive(Debug)]
pub(super) struct Object(Map<String, Value>);

impl Object {
    /// Reads a line.
    pub(super) fn read(line: &str) -> Result<Self, Trouble> {
        match serde_json::from_str(line) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(other) => Err(Trouble::NotJson(format!("{} was found", sort(&other)))),
            // The parser counts every line as its first, which would contradict ours.
            Err(error) => Err(Trouble::NotJson(clipped(&error.to_string().replace("at line 1 column", "at column")))),
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// The first of `keys` that is there and not null.
    fn first(&self, keys: &[&'static str]) -> Option<(&'static str, &Value)> {
        keys.iter().find_map(|&key| self.0.get(key).filter(|value| !value.is_null()).map(|value| (key, value)))
    }

    /// The text under the first of `keys` that is there; numbers and truths count as text.
    pub(super) fn text(&self, keys: &[&'static str]) -> Result<Option<String>, Trouble> {
        match self.first(keys) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((key, value @ (Value::Array(_) | Value::Object(_)))) => {
                Err(Trouble::WrongType { key, found: sort(value) })
            }
            Some((_, other)) => Ok(Some(other.to_string())),
        }
    }

    /// The text that cannot be left out, named by the first key.
    pub(super) fn need(&self, keys: &[&'static str]) -> Result<String, Trouble> {
        self.text(keys)?.ok_or(Trouble::MissingKey(keys[0]))
    }

    /// A number of seconds, which may be written as a text; it may be below zero.
    pub(super) fn number(&self, key: &'static str) -> Result<Option<f64>, Trouble> {
        let Some(written) = self.text(&[key])?.filter(|written| !written.trim().is_empty()) else { return Ok(None) };
        number(key, &written).map(Some)
    }

    /// A number of seconds that is not below zero.
    pub(super) fn seconds(&self, key: &'static str) -> Result<Option<Seconds>, Trouble> {
        match self.number(key)? {
            Some(value) if value < 0.0 => Err(Trouble::WrongTime { key, value: value.to_string() }),
            value => Ok(value.map(Seconds)),
        }
    }

    /// The object under a key, taken out.
    pub(super) fn object(&mut self, key: &str) -> Option<Self> {
        match self.0.remove(key) {
            Some(Value::Object(map)) => Some(Self(map)),
            _ => None,
        }
    }

    /// The objects in the list under a key, taken out; whatever else is in it is passed over.
    pub(super) fn objects(&mut self, key: &str) -> Vec<Self> {
        let Some(Value::Array(list)) = self.0.remove(key) else { return vec![] };
        let object = |value| if let Value::Object(map) = value { Some(Self(map)) } else { None };
        list.into_iter().filter_map(object).collect()
    }

    /// The whole numbers under a key, be it a list or a single one.
    pub(super) fn counts(&self, key: &str) -> Vec<u64> {
        match self.0.get(key) {
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_u64).collect(),
            Some(value) => value.as_u64().into_iter().collect(),
            None => vec![],
        }
    }
}

/// A number that is neither infinite nor none.
pub(super) fn number(key: &'static str, written: &str) -> Result<f64, Trouble> {
    let value = written.trim().parse().ok().filter(|value: &f64| value.is_finite());
    value.ok_or_else(|| Trouble::WrongTime { key, value: format!("`{}`", clipped(written)) })
}

fn sort(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
