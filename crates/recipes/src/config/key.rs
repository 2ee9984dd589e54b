//! One key of the configuration, and a section of keys.

use super::kind::Kind;

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Full name, such as `data.batch_size`.
    pub name: &'static str,
    /// Help text.
    pub about: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
}

/// A section of the configuration with its keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Name, as in square brackets; empty for the keys above all sections.
    pub name: &'static str,
    /// Help text.
    pub about: &'static str,
    /// Keys, in the order of the documentation.
    pub keys: &'static [Key],
}

impl Key {
    /// Name of its section; empty for a key above all sections.
    pub fn section(&self) -> &'static str {
        split_name(self.name).0
    }

    /// Name within its section.
    pub fn leaf(&self) -> &'static str {
        split_name(self.name).1
    }
}

/// Splits the full name of a key into its section and its name within the section.
pub(super) fn split_name(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or(("", name))
}
