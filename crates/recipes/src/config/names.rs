//! From names as written to keys: older names are translated, unknown names are findings.

use std::collections::BTreeSet;

use config::ValueKind;

use super::aliases::{self, Alias};
use super::error::{Finding, Problem};
use super::keys::{self, Key};
use super::kind::Kind;
use super::nearest;
use super::place::Place;

/// A setting as somebody wrote it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The whole name, not checked yet.
    pub name: String,
    /// The value.
    pub value: Raw,
    /// Where it stands.
    pub place: Place,
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
    pub place: Place,
}

/// An older name was used; it works, and the new one is better.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: `{old}` is an older name of `{key}`")]
pub struct Warning {
    /// Where it was used first.
    pub place: String,
    /// The older name.
    pub old: &'static str,
    /// Today's name.
    pub key: &'static str,
}

/// The settings of known keys among `written`, with older names translated and told once each.
pub(super) fn resolve(written: Vec<Written>, findings: &mut Vec<Finding>) -> (Vec<Setting>, Vec<Warning>) {
    let (mut settings, mut warnings, mut told) = (Vec::new(), Vec::new(), BTreeSet::new());
    for Written { name, value, place } in written {
        let alias = aliases::find(&name);
        let Some(key) = keys::find(alias.map_or(&name, |alias| alias.key)) else {
            findings.push(Finding::new(&place, unknown(name, &value)));
            continue;
        };
        if let Some(alias) = alias.filter(|alias| told.insert(alias.old)) {
            warnings.push(Warning { place: place.to_string(), old: alias.old, key: alias.key });
        }
        settings.push(Setting { key, value: value.read(key, alias), place });
    }
    (settings, warnings)
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

fn unknown(name: String, value: &Raw) -> Problem {
    let (section, _) = keys::split(&name);
    let is_table = matches!(value, Raw::Read(ValueKind::Table(_)));
    if keys::is_section(&name) {
        return Problem::NotASection { section: name, found: value.found() };
    }
    match nearest::key(&name) {
        Some(nearest) if !is_table => Problem::UnknownKey { key: name, nearest: Some(nearest) },
        _ if is_table && section.is_empty() => {
            Problem::UnknownSection { nearest: nearest::section(&name), section: name }
        }
        None if !section.is_empty() && !keys::is_section(section) => {
            Problem::UnknownSection { nearest: nearest::section(section), section: section.into() }
        }
        nearest => Problem::UnknownKey { key: name, nearest },
    }
}

impl Raw {
    fn found(&self) -> String {
        match self {
            Self::Read(value) => found(value),
            Self::Text(text) => format!("{text:?}"),
        }
    }

    fn read(self, key: &Key, alias: Option<&Alias>) -> ValueKind {
        let kind = alias.map_or(key.kind, |alias| alias.kind(key.kind));
        let value = match self {
            Self::Read(value) => value,
            Self::Text(text) => read_text(kind, text),
        };
        alias.map_or(value.clone(), |alias| alias.translate(value))
    }
}

/// A text as the value it writes: TOML where that is TOML, and a text as it is everywhere else.
fn read_text(kind: Kind, text: String) -> ValueKind {
    let value = super::file::toml_value(&text);
    match (kind, value) {
        (_, Some(value @ ValueKind::String(_))) => value,
        // A run may be called `12`, and a folder `true`.
        (Kind::Text | Kind::Path | Kind::OneOf(_), _) | (_, None) => ValueKind::String(text),
        (_, Some(value)) => value,
    }
}
