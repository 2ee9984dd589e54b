//! Writing of the advised changes into a configuration.

use std::path::{Path, PathBuf};

use plimsoll_monitor::advice::Finding;
use plimsoll_recipes::config::{ConfigArgs, load, to_toml};
use plimsoll_recipes::invocation::command;
use plimsoll_recipes::{Failure, FailureExt};

use super::AdviseArgs;
use crate::environment;
use crate::optimize::edit::{Change, edited};
use crate::optimize::set_by_flags;
use crate::output::{ForceFlag, OutputFile};

/// File that the changed configuration is written to.
pub(super) struct Destination(Option<OutputFile>);

impl Destination {
    /// Checks the file that `args` name.
    pub(super) fn new(args: &AdviseArgs) -> Result<Self, Failure> {
        let (path, flag, force) = match (&args.output, args.apply) {
            (Some(path), _) => (path.clone(), "--output", args.force),
            (None, false) => return Ok(Self(None)),
            (None, true) => (edited_file(args)?, "--apply", ForceFlag { force: true }),
        };
        OutputFile::new(&path, flag, force).map(|file| Self(Some(file)))
    }

    /// Writes the configuration of `flags` with the changes of `findings`.
    pub(super) fn write(&self, findings: &[&Finding], flags: &ConfigArgs, is_quiet: bool) -> Result<(), Failure> {
        let Some(file) = &self.0 else { return Ok(()) };
        let changes: Vec<Change> = findings.iter().flat_map(|finding| changes(finding)).collect();
        let loaded = load(flags, environment())?;
        let (text, set) = match &flags.config {
            // What flags have set belongs to the configuration that was judged.
            Some(path) if is_toml(path) => (std::fs::read_to_string(path).failed()?, set_by_flags(&loaded)),
            _ => (to_toml(&loaded), Vec::new()),
        };
        file.write(edited(&edited(&text, &set, "advise"), &changes, "advise"))?;
        if !is_quiet {
            let count = plimsoll_core::counted(changes.len(), "change");
            eprintln!("{} has {count}", file.path().display());
        }
        Ok(())
    }
}

/// Returns the configuration file that `--apply` changes.
fn edited_file(args: &AdviseArgs) -> Result<PathBuf, Failure> {
    let path = args.trial.config.config.clone().unwrap_or_default();
    if is_toml(&path) {
        return Ok(path);
    }
    let print = command("config print --config FILE");
    let message = format!("{} is not a TOML file; --apply changes only those", path.display());
    Err(Failure::invalid(message, format!("--output writes another file; `{print}` writes any configuration as TOML")))
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Returns the changes of `finding` as lines of a configuration.
fn changes(finding: &Finding) -> Vec<Change> {
    let line = |change: &plimsoll_monitor::advice::Change| {
        let (section, leaf) = change.key.rsplit_once('.').unwrap_or(("", &change.key));
        let is_plain = change.to.parse::<f64>().is_ok() || ["true", "false"].contains(&change.to.as_str());
        let value = if is_plain || change.to.starts_with('[') { change.to.clone() } else { format!("{:?}", change.to) };
        Change::new(section, leaf, value, &finding.title.to_lowercase())
    };
    finding.changes().map(line).collect()
}
