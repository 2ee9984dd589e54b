//! From names as written to keys: older names are translated, unknown names are findings.

use std::collections::BTreeSet;

use config::ValueKind;

use super::aliases::{self, Alias};
use super::error::{Finding, Problem};
use super::key::Key;
use super::keys;
use super::kind::Kind;
use super::nearest;
use super::setting::{Raw, Setting, Written, found};
use super::toml_value::toml_value;

/// An older name was used; it works, and the new one is better.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: `{old}` is an older name of `{key}`")]
pub struct Warning {
    /// Where it was used first.
    pub origin: String,
    /// The older name.
    pub old: &'static str,
    /// Today's name.
    pub key: &'static str,
}

/// The settings of known keys among `written`, with older names translated and told once each.
pub(super) fn resolve(written: Vec<Written>, findings: &mut Vec<Finding>) -> (Vec<Setting>, Vec<Warning>) {
    let (mut settings, mut warnings, mut told) = (Vec::new(), Vec::new(), BTreeSet::new());
    for Written { name, value, origin } in written {
        let alias = aliases::find(&name);
        let Some(key) = keys::find(alias.map_or(&name, |alias| alias.key)) else {
            findings.push(Finding::new(&origin, unknown(name, &value)));
            continue;
        };
        if let Some(alias) = alias.filter(|alias| told.insert(alias.old)) {
            warnings.push(Warning { origin: origin.to_string(), old: alias.old, key: alias.key });
        }
        settings.push(Setting { key, value: value.read(key, alias), origin });
    }
    (settings, warnings)
}

fn unknown(name: String, value: &Raw) -> Problem {
    let (section, _) = super::key::split(&name);
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
    let value = toml_value(&text);
    match (kind, value) {
        (_, Some(value @ ValueKind::String(_))) => value,
        // A run may be called `12`, and a folder `true`.
        (Kind::Text | Kind::Path | Kind::OneOf(_), _) | (_, None) => ValueKind::String(text),
        (_, Some(value)) => value,
    }
}
