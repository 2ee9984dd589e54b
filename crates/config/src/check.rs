//! Checks values: each alone, then keys that exclude each other, then combinations of keys.

use std::collections::BTreeSet;

use super::error::{ConfigIssue, IssueKind};
use super::file::is_built_in;
use super::kind::{Kind, Mismatch};
use super::nearest;
use super::origin::{Layer, Provenance, ValueOrigin};
use super::rules::{EXCLUSIVE, RULES};
use super::schema::RunConfig;
use super::setting::{Setting, describe};
use config::ValueKind;

/// Names of keys whose values have an issue; the rules about combinations of keys skip them.
pub(super) type InvalidKeys = BTreeSet<&'static str>;

/// Removes the settings whose values their keys do not accept, adds them to `issues`, and returns their keys.
pub(super) fn values(settings: &mut Vec<Setting>, issues: &mut Vec<ConfigIssue>) -> InvalidKeys {
    let mut invalid = InvalidKeys::new();
    settings.retain(|setting| {
        let Some(kind) = value_issue(setting) else { return true };
        issues.push(ConfigIssue::new(&setting.origin, kind));
        invalid.insert(setting.key.name);
        false
    });
    invalid
}

fn value_issue(setting: &Setting) -> Option<IssueKind> {
    let Setting { key, value, .. } = setting;
    // An empty value in YAML means "not set", which is allowed if the key has no default.
    if matches!(value, ValueKind::Nil) && key.default().is_none() {
        return None;
    }
    let mismatch = key.kind.mismatch(value)?;
    let (key, found, expected) = (key.name.to_string(), describe(value), key.kind.expected(value));
    Some(match mismatch {
        Mismatch::Type => IssueKind::WrongType { key, found, expected },
        Mismatch::Range => IssueKind::OutOfRange { key, found, expected },
        Mismatch::Word => IssueKind::UnknownWord { nearest: nearest_word(setting), key, found, expected },
    })
}

fn nearest_word(setting: &Setting) -> Option<&'static str> {
    match (setting.key.kind, &setting.value) {
        (Kind::OneOf(words) | Kind::OneOfOrInteger(words, ..), ValueKind::String(text)) => {
            nearest::word(text, words.iter().copied())
        }
        _ => None,
    }
}

/// Reports keys that are set twice in one layer, to different values. On the command line this is allowed, and the last value counts.
pub(super) fn duplicates(settings: &[Setting], issues: &mut Vec<ConfigIssue>) {
    for (index, setting) in settings.iter().enumerate() {
        let same = |other: &&Setting| {
            other.key == setting.key && person_layer(other) == person_layer(setting) && other.value != setting.value
        };
        if person_layer(setting) == Layer::Default {
            // A recipe replaces values of the built-in file.
            continue;
        }
        let first = settings[..index].iter().find(same);
        if let Some(first) = first.filter(|first| !matches!(first.origin, ValueOrigin::Flag(_))) {
            let kind = IssueKind::Duplicate { key: setting.key.name, first: first.origin.to_string() };
            issues.push(ConfigIssue::new(&setting.origin, kind));
        }
    }
}

/// Resolves pairs of keys that exclude each other: the key in the stronger layer removes the key in the weaker layer.
/// Two such keys in one layer are an issue; returns the names of these keys.
///
/// So `--batch-size` works with any file, even if the file sets `data.batch_seconds`.
pub(super) fn exclusive_keys(settings: &mut Vec<Setting>, issues: &mut Vec<ConfigIssue>) -> InvalidKeys {
    let mut invalid = InvalidKeys::new();
    for (key, other) in EXCLUSIVE {
        let layer = |name| settings.iter().filter(|s| sets(s, name)).map(person_layer).max();
        let (Some(one), Some(two)) = (layer(key), layer(other)) else { continue };
        let strongest = one.max(two);
        settings.retain(|s| !(sets(s, key) || sets(s, other)) || person_layer(s) == strongest);
        if one == two {
            let origin = |name| settings.iter().rfind(|s| sets(s, name)).map_or(&ValueOrigin::Default, |s| &s.origin);
            let kind = IssueKind::Exclusive { key, other, other_origin: origin(other).to_string() };
            issues.push(ConfigIssue::new(origin(key), kind));
            invalid.extend([*key, *other]);
        }
    }
    invalid
}

/// Removes limits of the run that weaker layers set: what a person says holds against what is only a default.
///
/// `training.steps` and `training.epochs` replace each other: the one in the stronger layer holds, and both in one layer
/// hold together. They replace a weaker `training.min_steps`. `training.max_time` replaces all of the built-in file.
pub(super) fn limits_of_the_run(settings: &mut Vec<Setting>) {
    let is_amount = |setting: &Setting| sets(setting, "training.steps") || sets(setting, "training.epochs");
    let amount = settings.iter().filter(|s| is_amount(s)).map(person_layer).max();
    let time = settings.iter().filter(|s| sets(s, "training.max_time")).map(person_layer).max();
    let least = match (amount, time) {
        (Some(Layer::Default), Some(time)) if time > Layer::Default => Layer::File,
        (Some(amount), _) => amount,
        (None, _) => return,
    };
    let is_bound = |setting: &Setting| is_amount(setting) || sets(setting, "training.min_steps");
    settings.retain(|setting| !is_bound(setting) || person_layer(setting) >= least);
}

/// Removes a weaker `training.warmup_share`, which limits `training.warmup_steps`: the steps that a person asks for hold.
pub(super) fn warm_up(settings: &mut Vec<Setting>) {
    let asked = settings.iter().filter(|s| sets(s, "training.warmup_steps")).map(person_layer).max();
    let is_weaker = |setting: &Setting| asked.is_some_and(|asked| person_layer(setting) < asked);
    settings.retain(|setting| !sets(setting, "training.warmup_share") || !is_weaker(setting));
}

/// Returns the layer of `setting`; the built-in file counts as a default.
fn person_layer(setting: &Setting) -> Layer {
    match &setting.origin {
        ValueOrigin::File(file, _) if is_built_in(file) => Layer::Default,
        origin => origin.layer(),
    }
}

/// Returns whether `setting` gives a value to the key `name`.
fn sets(setting: &Setting, name: &str) -> bool {
    setting.key.name == name && !matches!(setting.value, ValueKind::Nil)
}

/// Reports every rule of [`RULES`] that `config` breaks, except rules about an invalid key.
///
/// If no layer sets any key of a rule, the issue is reported in `file`, where a key is missing.
pub(super) fn combinations(
    config: &RunConfig,
    provenance: &Provenance,
    file: &ValueOrigin,
    invalid: &InvalidKeys,
) -> Vec<ConfigIssue> {
    let checked = RULES.iter().filter(|rule| !rule.keys.iter().any(|key| invalid.contains(key)));
    checked
        .filter_map(|rule| {
            let text = (rule.violation)(config)?;
            // Report the key of the strongest layer; among equals, the first key of the rule.
            let origins = rule.keys.iter().map(|key| provenance.origin(key));
            let origin = origins.rev().max_by_key(|origin| origin.layer()).unwrap_or(file);
            let origin = if *origin == ValueOrigin::Default { file } else { origin };
            Some(ConfigIssue::new(origin, IssueKind::Conflict(text)))
        })
        .collect()
}
