//! Loading, told in order: read the layers, know the names, judge the values, merge, judge the whole.

use std::path::Path;

use config::ValueKind;

use super::arguments::ConfigArgs;
use super::check;
use super::choices::Task;
use super::environment;
use super::error::ConfigError;
use super::file::{self, ReadFile};
use super::kind::Kind;
use super::merge::merge;
use super::names::{self, Warning};
use super::origin::{Provenance, ValueOrigin};
use super::schema::RunConfig;
use super::setting::{Raw, Setting, Written};
use super::tiers::{AUTO, Tier};

/// A configuration to run with, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What was written, all layers taken together.
    pub config: RunConfig,
    /// Where each value came from.
    pub provenance: Provenance,
    /// Older names that were used.
    pub warnings: Vec<Warning>,
}

/// The configuration that the file of `args`, `environment` and the flags of `args` make together.
///
/// The file `auto` is the one that ships for a card of the size of the one that is here.
///
/// The environment is passed in: who calls from a program gives `std::env::vars()`, and a test gives a list.
pub fn load(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, ConfigError> {
    if args.config.as_deref() != Some(Path::new(AUTO)) {
        return load_with(args, environment, &|path| std::fs::read_to_string(path));
    }
    let environment: Vec<(String, String)> = environment.collect();
    let mut said = environment::read(environment.iter().cloned());
    said.extend(args.read(&mut Vec::new()));
    let tier = Tier::of(task_of(&said), crate::target::memory_here());
    let args = ConfigArgs { config: Some(tier.path()), ..args.clone() };
    let shipped =
        |path: &Path| Tier::text_of(path).map_or_else(|| std::fs::read_to_string(path), |text| Ok(text.into()));
    load_with(&args, environment.into_iter(), &shipped)
}

/// As [`load`], reading the file through `read_file`.
pub(super) fn load_with(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    read_file: ReadFile<'_>,
) -> Result<Loaded, ConfigError> {
    let mut findings = Vec::new();
    let mut said = environment::read(environment);
    said.extend(args.read(&mut findings));
    let (file, mut written) = file::read(args.config.as_deref(), task_of(&said), read_file)?;
    written.extend(said);
    let (mut settings, warnings) = names::resolve(written, &mut findings);
    check::twice(&settings, &mut findings);
    // A misspelt key leaves a hole that would show up again as a wrong value: names are settled first.
    ConfigError::from_findings(std::mem::take(&mut findings))?;

    settings.iter_mut().for_each(left_open);
    let mut bad = check::values(&mut settings, &mut findings);
    bad.extend(check::exclusive(&mut settings, &mut findings));
    let (config, provenance) = merge(&settings)?;
    findings.extend(check::together(&config, &provenance, &ValueOrigin::File(file, None), &bad));
    ConfigError::from_findings(findings)?;
    Ok(Loaded { config, provenance, warnings })
}

/// The word `auto` for a whole number that is found where none is given.
fn left_open(setting: &mut Setting) {
    let is_open = matches!(setting.key.kind, Kind::Whole(..)) && setting.key.default().is_none();
    if is_open && matches!(&setting.value, ValueKind::String(text) if text == "auto") {
        setting.value = ValueKind::Nil;
    }
}

/// The task that the environment and the flags ask for, the last word counting: it decides which job is built in.
pub(super) fn task_of(said: &[Written]) -> Task {
    let is_tts = |value: &Raw| matches!(value, Raw::Text(text) if text == Task::Tts.word());
    let last = said.iter().rfind(|setting| setting.name == "task");
    if last.is_some_and(|setting| is_tts(&setting.value)) { Task::Tts } else { Task::Asr }
}
