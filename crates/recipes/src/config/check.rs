//! Whether values are sensible: each alone, then keys that exclude each other, then keys that must fit together.

use std::collections::BTreeSet;

use super::error::{Finding, Problem};
use super::kind::Fault;
use super::nearest;
use super::origin::{Provenance, ValueOrigin};
use super::rules::{EXCLUSIVE, RULES};
use super::schema::RunConfig;
use super::setting::{Setting, found};
use config::ValueKind;

/// Keys with a finding, which no later rule need judge.
pub(super) type BadKeys = BTreeSet<&'static str>;

/// Takes out the settings whose values do not fit their key, and reports them.
pub(super) fn values(settings: &mut Vec<Setting>, findings: &mut Vec<Finding>) -> BadKeys {
    let mut bad = BadKeys::new();
    settings.retain(|setting| {
        let Some(problem) = problem(setting) else { return true };
        findings.push(Finding::new(&setting.origin, problem));
        bad.insert(setting.key.name);
        false
    });
    bad
}

fn problem(setting: &Setting) -> Option<Problem> {
    let Setting { key, value, .. } = setting;
    // An empty value in YAML: nothing, which is fine where nothing is the default.
    if matches!(value, ValueKind::Nil) && key.default().is_none() {
        return None;
    }
    let fault = key.kind.fault(value)?;
    let (key, found, expected) = (key.name.to_string(), found(value), key.kind.expected(value));
    Some(match fault {
        Fault::Type => Problem::WrongType { key, found, expected },
        Fault::Range => Problem::OutOfRange { key, found, expected },
        Fault::Word => Problem::UnknownWord { nearest: nearest_word(setting), key, found, expected },
    })
}

fn nearest_word(setting: &Setting) -> Option<&'static str> {
    match (setting.key.kind, &setting.value) {
        (super::kind::Kind::OneOf(words), ValueKind::String(text)) => nearest::word(text, words.iter().copied()),
        _ => None,
    }
}

/// Reports keys given twice in one layer; on the command line the last one wins instead, as people expect there.
pub(super) fn twice(settings: &[Setting], findings: &mut Vec<Finding>) {
    for (index, setting) in settings.iter().enumerate() {
        let same = |other: &&Setting| other.key == setting.key && other.origin.layer() == setting.origin.layer();
        let first = settings[..index].iter().find(same);
        if let Some(first) = first.filter(|first| !matches!(first.origin, ValueOrigin::Flag(_))) {
            let problem = Problem::Twice { key: setting.key.name, first: first.origin.to_string() };
            findings.push(Finding::new(&setting.origin, problem));
        }
    }
}

/// Keys that exclude each other: a stronger layer drives the weaker one's key out, in one layer it is a finding.
///
/// So `--batch-size` works whatever the file says about `data.batch_seconds`.
pub(super) fn exclusive(settings: &mut Vec<Setting>, findings: &mut Vec<Finding>) -> BadKeys {
    let mut bad = BadKeys::new();
    for (key, other) in EXCLUSIVE {
        let layer = |name| settings.iter().filter(|s| given(s, name)).map(|s| s.origin.layer()).max();
        let (Some(one), Some(two)) = (layer(key), layer(other)) else { continue };
        let strongest = one.max(two);
        settings.retain(|s| !(given(s, key) || given(s, other)) || s.origin.layer() == strongest);
        if one == two {
            let origin = |name| settings.iter().rfind(|s| given(s, name)).map_or(&ValueOrigin::Default, |s| &s.origin);
            let problem = Problem::Exclusive { key, other, other_origin: origin(other).to_string() };
            findings.push(Finding::new(origin(key), problem));
            bad.extend([*key, *other]);
        }
    }
    bad
}

fn given(setting: &Setting, name: &str) -> bool {
    setting.key.name == name && !matches!(setting.value, ValueKind::Nil)
}

/// Keys that do not fit together, except where one of them has a finding already.
///
/// What no layer wrote stands in `file`: that is where something is missing.
pub(super) fn together(config: &RunConfig, provenance: &Provenance, file: &ValueOrigin, bad: &BadKeys) -> Vec<Finding> {
    let broken = RULES.iter().filter(|rule| !rule.keys.iter().any(|key| bad.contains(key)));
    broken
        .filter_map(|rule| {
            let text = (rule.broken)(config)?;
            // Who spoke last is asked first; among equals the key that the rule names first.
            let places = rule.keys.iter().map(|key| provenance.origin(key));
            let origin = places.rev().max_by_key(|origin| origin.layer()).unwrap_or(file);
            let origin = if *origin == ValueOrigin::Default { file } else { origin };
            Some(Finding::new(origin, Problem::Disagree(text)))
        })
        .collect()
}
