//! Finds the key of each setting: older names are translated, unknown names become issues.

use std::collections::BTreeSet;

use config::ValueKind;

use super::aliases::{self, Alias};
use super::bounds::shortened;
use super::error::{ConfigIssue, IssueKind};
use super::foreign;
use super::key::{Key, split_name};
use super::keys;
use super::kind::Kind;
use super::nearest;
use super::notes::ConfigNote;
use super::origin::ValueOrigin;
use super::setting::{RawSetting, RawValue, Setting, describe};
use super::toml_value::toml_value;
use super::variable::variable_name;

/// Resolves the names in `raw`: returns the settings of known keys, and one note for each older name and for each option
/// of another system that has no effect here.
pub(super) fn resolve(raw: Vec<RawSetting>, issues: &mut Vec<ConfigIssue>) -> (Vec<Setting>, Vec<ConfigNote>) {
    let (mut settings, mut notes, mut noted) = (Vec::new(), Vec::new(), BTreeSet::new());
    for RawSetting { name, value, origin } in raw {
        let alias = aliases::find(&name);
        let Some(key) = keys::find(alias.map_or(&name, |alias| alias.key)) else {
            match foreign::find(&name) {
                Some(option) if noted.insert(option.name) => {
                    let (origin, name, reason) = (origin.to_string(), option.name, option.reason);
                    notes.push(ConfigNote::NoEffect { origin, name, reason });
                }
                Some(_) => {}
                None if is_of_others(&name, &origin) => {
                    let nearest = nearest::key(&name).map(variable_name);
                    notes.push(ConfigNote::NoSetting { origin: origin.to_string(), nearest });
                }
                None => issues.push(ConfigIssue::new(&origin, unknown(name, &value))),
            }
            continue;
        };
        if let Some(alias) = alias.filter(|alias| noted.insert(alias.old)) {
            notes.push(ConfigNote::OlderName { origin: origin.to_string(), old: alias.old, key: alias.key });
        }
        settings.push(Setting { key, value: value.parse(key, alias), origin });
    }
    (settings, notes)
}

/// Returns whether a name that is no key comes from an environment variable that another program may use, as `PLIMSOLL_CUDA`:
/// it is not written as a key of a section is, and is like no key that it could mean.
fn is_of_others(name: &str, origin: &ValueOrigin) -> bool {
    if !matches!(origin, ValueOrigin::Environment(_)) || name.contains('.') || keys::is_section(name) {
        return false;
    }
    let names_section = name.split_once('_').is_some_and(|(section, _)| keys::is_section(section));
    let is_near = |key: &str| strsim::damerau_levenshtein(name, key) <= 1;
    nearest::key(name).is_none_or(|key| if key.contains('.') { !names_section } else { !is_near(key) })
}

/// Makes the issue for a name that is no key.
fn unknown(name: String, value: &RawValue) -> IssueKind {
    let (section, _) = split_name(&name);
    let is_table = matches!(value, RawValue::Typed(ValueKind::Table(_)));
    // No key is similar to such a long name, and the search would take long.
    if shortened(&name) != name {
        return IssueKind::UnknownKey { key: shortened(&name), nearest: None };
    }
    if keys::is_section(&name) {
        return IssueKind::NotASection { section: name, found: value.describe() };
    }
    match nearest::key(&name) {
        Some(nearest) if !is_table => IssueKind::UnknownKey { key: name, nearest: Some(nearest) },
        _ if is_table && section.is_empty() => {
            IssueKind::UnknownSection { nearest: nearest::section(&name), section: name }
        }
        None if !section.is_empty() && !keys::is_section(section) => {
            IssueKind::UnknownSection { nearest: nearest::section(section), section: section.into() }
        }
        nearest => IssueKind::UnknownKey { key: name, nearest },
    }
}

impl RawValue {
    fn describe(&self) -> String {
        match self {
            Self::Typed(value) => describe(value),
            Self::Text(text) => shortened(&format!("{text:?}")),
        }
    }

    /// Parses the value for `key`, which was set under `alias` if there is an alias.
    fn parse(self, key: &Key, alias: Option<&Alias>) -> ValueKind {
        let kind = alias.map_or(key.kind, |alias| alias.kind(key.kind));
        let value = match self {
            Self::Typed(value) => value,
            Self::Text(text) => parse_text(kind, text),
        };
        alias.map_or(value.clone(), |alias| alias.translate(value))
    }
}

/// Parses `text` as TOML; a text that is no TOML value stays as it is.
fn parse_text(kind: Kind, text: String) -> ValueKind {
    let value = toml_value(&text);
    match (kind, value) {
        (_, Some(value @ ValueKind::String(_))) => value,
        // A run may be named `12`, and a folder `true`.
        (Kind::Text | Kind::Path | Kind::OneOf(_), _) | (_, None) => ValueKind::String(text),
        (_, Some(value)) => value,
    }
}
