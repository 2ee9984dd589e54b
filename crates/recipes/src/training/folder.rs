//! The folder of a run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use plimsoll_core::PlanHeader;
use serde::Serialize;

use crate::config::{Loaded, to_toml};
use crate::error::{Failure, FailureExt};
use crate::plan::RunPlan;

/// A run's folder, and the run's name.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// The configuration that a run was started with, for going on with it.
pub fn configuration_of(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("config.toml");
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("{} is no run that can be resumed: it has no config.toml", folder.display());
    Err(Failure::invalid(message, "`--resume` takes the folder of a run, such as runs/asr-1"))
}

impl RunFolder {
    /// Makes the folder of a new run: under its name, or under the first free number.
    pub fn make(plan: &RunPlan) -> Result<Self, Failure> {
        let runs = &plan.config.runs_dir;
        let mut path = match &plan.name {
            Some(name) => runs.join(name),
            None => first_free(runs, plan.config.task.as_str()),
        };
        if path.exists() && !is_bare(&path) {
            let message = format!("there is a run in {} already", path.display());
            let help = format!("choose another --name, or go on with it: --resume {}", path.display());
            return Err(Failure::invalid(message, help));
        }
        let help = "`--set runs_dir=FOLDER` puts runs elsewhere";
        let made = fs::create_dir_all(runs).and_then(|()| match fs::create_dir(&path) {
            // Another run took the number a moment ago.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && plan.name.is_none() => {
                path = first_free(runs, plan.config.task.as_str());
                fs::create_dir(&path)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_bare(&path) => Ok(()),
            made => made,
        });
        made.map_err(|error| {
            Failure::invalid(format!("cannot make the run folder {}: {error}", path.display()), help)
        })?;
        Ok(Self { path })
    }

    /// The folder of a run that goes on.
    pub fn reopen(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's name.
    pub fn name(&self) -> String {
        let absolute = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        absolute.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
    }

    /// The command that goes on with the run.
    pub fn resume_command(&self) -> String {
        format!("cargo xtask train --resume {}", self.path.display())
    }

    /// Whether all is there that does not change, and the model that belongs to it.
    pub fn is_whole(&self) -> bool {
        ["config.toml", "plan.toml", "model.json"].iter().all(|name| self.path.join(name).is_file())
    }

    /// Writes what does not change: the plan and the configuration.
    pub fn write(&self, plan: &RunPlan, loaded: &Loaded) -> Result<(), Failure> {
        let text = toml::to_string_pretty(&PlanFile { header: plan.header(), plan }).failed()?;
        // The configuration first, and at once: from then on the folder is a run that can be resumed.
        let (new, config) = (self.path.join(".config.toml"), self.path.join("config.toml"));
        fs::write(&new, to_toml(loaded)).and_then(|()| fs::rename(&new, &config)).failed()?;
        fs::write(self.path.join("plan.toml"), text).failed()
    }
}

/// `plan.toml`: the header that `plimsoll runs` reads, and the plan below it.
#[derive(Serialize)]
struct PlanFile<'a> {
    #[serde(flatten)]
    header: PlanHeader,
    #[serde(flatten)]
    plan: &'a RunPlan,
}

/// Whether nothing is in a folder but what a run leaves that was killed before it began.
fn is_bare(path: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == ".config.toml"))
}

fn first_free(runs: &Path, word: &str) -> PathBuf {
    (1..).map(|n| runs.join(format!("{word}-{n}"))).find(|path| !path.exists()).expect("numbers do not end")
}
