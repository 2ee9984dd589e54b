//! Loading, told in order: read the layers, know the names, judge the values, merge, judge the whole.

use super::arguments::ConfigArgs;
use super::check;
use super::environment;
use super::error::ConfigError;
use super::file::{self, ReadFile};
use super::merge::merge;
use super::names::{self, Warning};
use super::place::{Place, Provenance};
use super::schema::RunConfig;

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
/// The environment is passed in: who calls from a program gives `std::env::vars()`, and a test gives a list.
pub fn load(args: &ConfigArgs, environment: impl Iterator<Item = (String, String)>) -> Result<Loaded, ConfigError> {
    load_with(args, environment, &|path| std::fs::read_to_string(path))
}

/// As [`load`], reading the file through `read_file`.
pub(super) fn load_with(
    args: &ConfigArgs,
    environment: impl Iterator<Item = (String, String)>,
    read_file: ReadFile<'_>,
) -> Result<Loaded, ConfigError> {
    let (file, mut written) = file::read(args.config.as_deref(), read_file)?;
    let mut findings = Vec::new();
    written.extend(environment::read(environment));
    written.extend(args.read(&mut findings));
    let (mut settings, warnings) = names::resolve(written, &mut findings);
    check::twice(&settings, &mut findings);
    // A misspelt key leaves a hole that would show up again as a wrong value: names are settled first.
    ConfigError::from_findings(std::mem::take(&mut findings))?;

    let mut bad = check::values(&mut settings, &mut findings);
    bad.extend(check::exclusive(&mut settings, &mut findings));
    let (config, provenance) = merge(&settings)?;
    findings.extend(check::together(&config, &provenance, &Place::File(file, None), &bad));
    ConfigError::from_findings(findings)?;
    Ok(Loaded { config, provenance, warnings })
}
