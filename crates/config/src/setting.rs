//! A setting on its way from a file, an environment variable or a flag to its key.

use config::ValueKind;

use super::bounds::shortened;
use super::key::Key;
use super::origin::ValueOrigin;

/// A setting as written by the user; its name has not been checked.
#[derive(Clone, Debug)]
pub(super) struct RawSetting {
    /// Full name of the key.
    pub name: String,
    /// Value of the key, as written.
    pub value: RawValue,
    /// Place where the setting was written.
    pub origin: ValueOrigin,
}

/// A value as written by the user.
#[derive(Clone, Debug)]
pub(super) enum RawValue {
    /// Value from a file, where values have types.
    Typed(ValueKind),
    /// Value from the environment or the command line, where every value is a text.
    Text(String),
}

/// A setting of a known key.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// Key that is set.
    pub key: &'static Key,
    /// Value of the key, not checked yet.
    pub value: ValueKind,
    /// Place where the setting was written.
    pub origin: ValueOrigin,
}

/// Formats `value` for error messages; of a long value, its beginning.
pub(super) fn describe(value: &ValueKind) -> String {
    shortened(&whole(value))
}

fn whole(value: &ValueKind) -> String {
    match value {
        ValueKind::Nil => "nothing".into(),
        ValueKind::String(text) => format!("{text:?}"),
        ValueKind::Table(_) => "a table".into(),
        ValueKind::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| whole(&item.kind)).collect();
            format!("[{}]", items.join(", "))
        }
        // Debug writes 1e-8; Display would write 0.00000001.
        ValueKind::Float(number) => format!("{number:?}"),
        value => value.to_string(),
    }
}
