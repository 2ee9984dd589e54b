//! One key of the configuration, and a section of keys.

use super::kind::Kind;

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Full name of the key, such as `data.batch_size`.
    pub name: &'static str,
    /// Help text of the key.
    pub about: &'static str,
    /// Kind of values that the key accepts.
    pub kind: Kind,
}

/// A section of the configuration with its keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Name of the section, as in square brackets; empty for the keys above all sections.
    pub name: &'static str,
    /// Help text of the section.
    pub about: &'static str,
    /// Keys of the section, in the order of the documentation.
    pub keys: &'static [Key],
}

impl Key {
    /// Returns the name of the key's section; empty for a key above all sections.
    pub fn section(&self) -> &'static str {
        split_name(self.name).0
    }

    /// Returns the name of the key within its section.
    pub fn leaf(&self) -> &'static str {
        split_name(self.name).1
    }
}

/// Splits the full name of a key into its section and its name within the section.
pub(super) fn split_name(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or(("", name))
}
