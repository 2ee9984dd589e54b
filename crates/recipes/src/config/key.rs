//! One key of the configuration, and a section of them.

use super::kind::Kind;

/// One key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Its whole name, such as `data.batch_size`.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// What it takes.
    pub kind: Kind,
}

/// A section of the configuration with its keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Its name in square brackets; empty for the keys above all sections.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its keys, in the order of the documentation.
    pub keys: &'static [Key],
}

impl Key {
    /// The section it stands in; empty above all sections.
    pub fn section(&self) -> &'static str {
        split(self.name).0
    }

    /// Its name within the section.
    pub fn leaf(&self) -> &'static str {
        split(self.name).1
    }
}

/// The section of a whole name and the name within it.
pub(super) fn split(name: &str) -> (&str, &str) {
    name.split_once('.').unwrap_or(("", name))
}
