//! A setting on its way from a file, a variable or a flag to its key.

use config::ValueKind;

use super::key::Key;
use super::origin::ValueOrigin;

/// A setting as somebody wrote it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The whole name, not checked yet.
    pub name: String,
    /// The value.
    pub value: Raw,
    /// Where it stands.
    pub origin: ValueOrigin,
}

/// A value as somebody wrote it.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    /// Read from a file, which has types.
    Read(ValueKind),
    /// A text from the environment or the command line, which have none.
    Text(String),
}

/// A setting of a known key.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The key.
    pub key: &'static Key,
    /// The value, not checked yet.
    pub value: ValueKind,
    /// Where it stands.
    pub origin: ValueOrigin,
}

/// How a value reads in a message.
pub(super) fn found(value: &ValueKind) -> String {
    match value {
        ValueKind::Nil => "nothing".into(),
        ValueKind::String(text) => format!("{text:?}"),
        ValueKind::Table(_) => "a table".into(),
        ValueKind::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| found(&item.kind)).collect();
            format!("[{}]", items.join(", "))
        }
        // Rust's own way to write it: 1e-8, and not 0.00000001.
        ValueKind::Float(number) => format!("{number:?}"),
        value => value.to_string(),
    }
}
