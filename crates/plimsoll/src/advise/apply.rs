//! Writing of the advised changes into a configuration.

use std::path::{Path, PathBuf};

use plimsoll_config::invocation::command;
use plimsoll_config::{ConfigArgs, to_toml};
use plimsoll_core::read_text_file;
use plimsoll_monitor::advice::Finding;
use plimsoll_recipes::load;
use plimsoll_recipes::{Failure, FailureExt};

use super::AdviseArgs;
use crate::environment;
use crate::optimize::edit::{Change, edited};
use crate::optimize::set_by_flags;
use crate::output::{ForceFlag, OutputFile};

/// File that the changed configuration is written to.
pub(super) struct Destination {
    file: Option<OutputFile>,
    /// Whether the configuration is that of a run, whose name no other run can have.
    is_of_run: bool,
}

impl Destination {
    /// Checks the file that `args` name.
    pub(super) fn new(args: &AdviseArgs) -> Result<Self, Failure> {
        let is_of_run = args.trial.run.named().is_some();
        let (path, flag, force) = match (&args.output, args.apply) {
            (Some(path), _) => (path.clone(), "--out", args.force),
            (None, false) => return Ok(Self { file: None, is_of_run }),
            (None, true) => (edited_file(args)?, "--apply", ForceFlag { force: true }),
        };
        OutputFile::new(&path, flag, force, &["toml"]).map(|file| Self { file: Some(file), is_of_run })
    }

    /// Writes the configuration of `flags` with the changes of `findings`.
    pub(super) fn write(&self, findings: &[&Finding], flags: &ConfigArgs, is_quiet: bool) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        let changes: Vec<Change> = findings.iter().flat_map(|finding| changes(finding)).collect();
        let loaded = load(flags, environment())?;
        let (text, set) = match &flags.config {
            // What flags have set belongs to the configuration that was judged.
            Some(path) if is_toml(path) => (read_text_file(path).failed()?, set_by_flags(&loaded)),
            _ => (to_toml(&loaded), Vec::new()),
        };
        let text = edited(&edited(&text, &set, "advise")?, &changes, "advise")?;
        file.write(if self.is_of_run { without_name(&text) } else { text })?;
        if !is_quiet && file.path().as_os_str() != "-" {
            let count = plimsoll_core::counted(changes.len(), "change");
            eprintln!("{} has {count}", file.path().display());
        }
        Ok(())
    }
}

/// Returns `text` without the name of the run.
fn without_name(text: &str) -> String {
    match text.parse::<toml_edit::DocumentMut>() {
        Ok(mut document) => {
            document.remove("name");
            document.to_string()
        }
        Err(_) => text.to_string(),
    }
}

/// Returns the configuration file that `--apply` changes.
fn edited_file(args: &AdviseArgs) -> Result<PathBuf, Failure> {
    let Some(path) = args.trial.config.config.clone() else {
        let help = "--out FILE.toml writes the changed configuration of a run to a file of its own";
        return Err(Failure::invalid("--apply needs the file to change: --config FILE.toml", help));
    };
    if is_toml(&path) {
        return Ok(path);
    }
    let print = command("config print --config FILE");
    let message = format!("{} is not a TOML file; --apply changes only those", path.display());
    Err(Failure::invalid(message, format!("--out writes another file; `{print}` writes any configuration as TOML")))
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
