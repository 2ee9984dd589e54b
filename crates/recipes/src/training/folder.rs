//! The folder of a run: finds a free name, creates it, writes its configuration and plan.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::PlanHeader;
use plimsoll_data::CorpusFingerprint;
use serde::Serialize;

use crate::config::{Loaded, to_toml};
use crate::earlier::UTTERANCES;
use crate::error::{Failure, FailureExt};
use crate::plan::RunPlan;

/// Folder of a run. Its last part is the name of the run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// Returns the path of the configuration in the folder of a run, for resuming the run.
///
/// # Errors
/// If `folder` holds no configuration, and so no run.
pub fn config_path(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("config.toml");
    if path.is_file() {
        return Ok(path);
    }
    let message = format!("{} is no run that can be resumed: it has no config.toml", folder.display());
    Err(Failure::invalid(message, "`--resume` takes the folder of a run, such as runs/asr-1"))
}

impl RunFolder {
    /// Creates the folder of a new run: with the name of the run, or else with the task and the first free number.
    ///
    /// # Errors
    /// If there is a run with this name, or the folder cannot be created.
    pub(super) fn create(plan: &RunPlan) -> Result<Self, Failure> {
        let runs = &plan.config.runs_dir;
        let mut path = match &plan.name {
            Some(name) => runs.join(name),
            None => first_free(runs, plan.config.task.as_str()),
        };
        if path.exists() && !is_unused(&path) {
            let message = format!("there is a run in {} already", path.display());
            let help = format!("choose another --name, or go on with it: --resume {}", path.display());
            return Err(Failure::invalid(message, help));
        }
        let help = "`--set runs_dir=FOLDER` puts runs elsewhere";
        let made = fs::create_dir_all(runs).and_then(|()| match fs::create_dir(&path) {
            // Another process took the number since it was found free.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && plan.name.is_none() => {
                path = first_free(runs, plan.config.task.as_str());
                fs::create_dir(&path)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists && is_unused(&path) => Ok(()),
            made => made,
        });
        made.map_err(|error| {
            Failure::invalid(format!("cannot make the run folder {}: {error}", path.display()), help)
        })?;
        Ok(Self { path })
    }

    /// Opens the folder of a run that is resumed, without reading it.
    pub(super) fn open(path: &Path) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the run.
    pub fn name(&self) -> String {
        let absolute = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        absolute.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
    }

    /// Returns the command line that resumes the run.
    pub fn resume_command(&self) -> String {
        format!("cargo xtask train --resume {}", self.path.display())
    }

    /// Writes the configuration and the plan.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub(super) fn write(&self, plan: &RunPlan, loaded: &Loaded) -> Result<(), Failure> {
        let text = toml::to_string_pretty(&PlanFile { header: plan.header(), plan }).failed()?;
        // The configuration first, and with an atomic rename: from then on the run can be resumed.
        let (new, config) = (self.path.join(".config.toml"), self.path.join("config.toml"));
        fs::write(&new, to_toml(loaded)).and_then(|()| fs::rename(&new, &config)).failed()?;
        fs::write(self.path.join("plan.toml"), text).failed()
    }

    /// Writes the fingerprint of the utterances, with which a resumed run compares its data.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write_utterances(&self, corpus: &CorpusFingerprint) -> Result<(), Failure> {
        let (new, file) = (self.path.join(".utterances.jsonl"), self.path.join(UTTERANCES));
        fs::write(&new, corpus.to_lines()).and_then(|()| fs::rename(&new, &file)).failed()
    }
}

/// Makes the identity of a new run: 16 hexadecimal digits that no other run has.
pub(super) fn new_identity() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The keys of a new hasher are random numbers of the operating system.
    format!("{:016x}", RandomState::new().hash_one((time, std::process::id())))
}

/// Content of `plan.toml`: the header, which `plimsoll runs` reads, and then the plan.
#[derive(Serialize)]
struct PlanFile<'a> {
    #[serde(flatten)]
    header: PlanHeader,
    #[serde(flatten)]
    plan: &'a RunPlan,
}

/// Returns whether a folder is empty, except for files of a run that was killed before its configuration was complete.
fn is_unused(path: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == ".config.toml"))
}

/// Returns the first path `runs/TASK-NUMBER` that does not exist.
fn first_free(runs: &Path, task: &str) -> PathBuf {
    (1..).map(|n| runs.join(format!("{task}-{n}"))).find(|path| !path.exists()).expect("numbers do not end")
}
