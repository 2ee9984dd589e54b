//! The folder of a run: finds a free name, creates it, writes its configuration and plan.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_config::invocation::command;
use plimsoll_config::{Loaded, RunConfig, to_toml};
use plimsoll_core::{Draft, PlanHeader, read_text_file, replace_file};
use plimsoll_data::CorpusFingerprint;
use plimsoll_monitor::{LockError, RunLock};
use plimsoll_speech::ModelFolder;
use plimsoll_train::{Disk, RealDisk};
use serde::Serialize;

use crate::earlier::UTTERANCES;
use crate::error::{Failure, FailureExt};
use crate::families::{self, ModelFacts, family};
use crate::features::features;
use crate::plan::RunPlan;

/// Folder of a run, locked for this process. Its last part is the name of the run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Keeps other processes out. The last copy of this folder frees it. `None` in the other processes of the run.
    lock: Option<Arc<RunLock>>,
    /// Whether this process made the folder.
    is_new: bool,
}

/// Name of the configuration in the folder of a run. A folder that has it is a run.
pub(super) const CONFIG: &str = "config.toml";
/// Names of files that a process leaves that was killed before the configuration of its run was complete, besides drafts.
const REMAINS: [&str; 2] = [".config.toml", ".lock"];

/// Returns the path of the configuration in the folder of a run, for resuming the run.
///
/// # Errors
/// If `folder` holds no configuration, and so no run.
pub fn config_path(folder: &Path) -> Result<PathBuf, Failure> {
    if let Some(path) = written_config(folder)? {
        return Ok(path);
    }
    if !folder.exists() {
        return Err(Failure::no_run(folder, &plimsoll_config::runs_folder()));
    }
    let message = format!("{} is no run that can be resumed: it has no config.toml", folder.display());
    Err(Failure::invalid(message, "`--resume` takes the folder of a run, such as runs/asr-1, or its name in `runs`"))
}

/// Returns the path of the configuration in the folder of a run; `None` if it has none, as an exported model.
///
/// # Errors
/// If the file is empty. It would count as the built-in configuration.
pub fn written_config(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let path = folder.join(CONFIG);
    if !path.is_file() {
        return Ok(None);
    }
    if read_text_file(&path).is_ok_and(|text| text.trim().is_empty()) {
        let message = format!("{} is empty: something has emptied it since the run wrote it", path.display());
        return Err(Failure::invalid(message, "copy the file back; without it the settings of the run are unknown"));
    }
    Ok(Some(path))
}

impl RunFolder {
    /// Checks that a new run of `config` can have its name, so that a mistake is found before the run is planned.
    ///
    /// # Errors
    /// If there is a run with this name.
    pub fn check_name(config: &RunConfig) -> Result<(), Failure> {
        match &config.name {
            Some(name) => refuse_used(&config.runs_dir.join(name)),
            None => Ok(()),
        }
    }

    /// Creates the folder of a new run: with the name of the run, or else with the task and the first free number.
    ///
    /// # Errors
    /// If there is a run with this name, or the folder cannot be created.
    pub(super) fn create(plan: &RunPlan) -> Result<Self, Failure> {
        let runs = &plan.config.runs_dir;
        let Some(name) = &plan.name else { return Self::create_numbered(runs, plan.config.task.as_str()) };
        let path = runs.join(name);
        refuse_used(&path)?;
        let is_new = make_folder(&path, true)?;
        let folder = Self::open_made(&path, is_new)?;
        // Since the first look, another process may have trained a run of this name to its end.
        refuse_used(&path)?;
        Ok(folder)
    }

    /// Creates the folder of a run without a name: with the first number that is free.
    fn create_numbered(runs: &Path, task: &str) -> Result<Self, Failure> {
        loop {
            let path = first_free(runs, task);
            // False if another process took the number since it was found free.
            if make_folder(&path, false)? {
                return Self::open_made(&path, true);
            }
        }
    }

    /// Opens a folder that `is_new` if this process made it; then it is removed if that fails.
    fn open_made(path: &Path, is_new: bool) -> Result<Self, Failure> {
        let opened = Self::open(path);
        if opened.is_err() && is_new {
            // It stays if another process uses it by now.
            let _ = fs::remove_dir(path);
        }
        opened.map(|folder| Self { is_new, ..folder })
    }

    /// Opens the folder of a run for this process alone, without reading it.
    ///
    /// # Errors
    /// If another process trains this run, or the folder cannot be written to.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let lock = RunLock::take(path).map_err(|error| match error {
            LockError::Held { .. } => {
                let help = "wait until it ends, or stop it. If its machine is gone, the run is free two minutes later";
                Failure::invalid(error.to_string(), help)
            }
            error => Failure::caused_by(&error, "a run needs a folder that it can write to"),
        })?;
        Ok(Self { path: path.into(), lock: Some(Arc::new(lock)), is_new: false })
    }

    /// Returns the folder of a run that another process of the same run has locked.
    pub(super) fn beside(path: PathBuf) -> Self {
        Self { path, lock: None, is_new: false }
    }

    /// Checks that `config` can go on with this run, as far as its files show without the data, so that a mistake is found
    /// before the run is planned.
    ///
    /// # Errors
    /// If the seed or the width of the model are not those with which the run began, or a file that says so cannot be read.
    pub fn check_config(&self, config: &RunConfig) -> Result<(), Failure> {
        let mut checkpoints = fs::read_dir(ModelFolder(&self.path).checkpoints()).into_iter().flatten().flatten();
        if checkpoints.all(|entry| entry.file_name().to_string_lossy().starts_with('.')) {
            // Without a checkpoint the run begins again.
            return Ok(());
        }
        let plan = self.path.join("plan.toml");
        let began: PlanHeader = match read_text_file(&plan) {
            Ok(text) => toml::from_str(&text).map_err(|error| unreadable(&plan, error.message()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => PlanHeader::default(),
            Err(error) => return Err(unreadable(&plan, &error.to_string())),
        };
        if let Some(seed) = began.seed.filter(|seed| *seed != config.seed) {
            return Err(other_seed(seed, config.seed));
        }
        // The weights of a checkpoint are compared when they are read.
        if !ModelFolder(&self.path).metadata_file().is_file() {
            return Ok(());
        }
        let ModelFacts { model: began, features: of_run, .. } = family(config).facts(&self.path)?;
        let new = families::model(config, began.features(), began.vocabulary());
        if new.shapes() == began.shapes() {
            return Ok(());
        }
        let keys = new.keys(&features(&config.features));
        let differs = |(key, value): &(&'static str, String)| {
            let (_, other) = keys.iter().find(|(new, _)| new == key)?;
            (value != other).then(|| format!("`{key}` {value}, and would go on with {other}"))
        };
        let began = began.keys(&of_run);
        let all: Vec<String> = began.iter().filter_map(differs).collect();
        let message = format!("the model of the run has {}", all.join("; "));
        Err(Failure::invalid(
            message,
            "keep the sizes of the model, or begin a new run: --from begins with these weights",
        ))
    }

    /// Returns a guard that removes the folder with all files unless it is kept; `None` if the folder was there before.
    pub(super) fn removed_unless_kept(&self) -> Option<Draft> {
        self.is_new.then(|| Draft::of(&self.path))
    }

    /// Returns whether the folder was deleted or moved since it was opened, or is that of another run now.
    pub(super) fn is_lost(&self) -> bool {
        let is_missing = fs::metadata(self.path.join(CONFIG)).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        is_missing || self.lock.as_ref().is_some_and(|lock| lock.is_replaced(&self.path))
    }

    /// Makes the failure of a run whose folder [is lost](Self::is_lost).
    pub(super) fn lost(&self) -> Failure {
        Failure::stopped(format!(
            "the folder of the run, {}, was deleted, moved or replaced while the run trained; the run ends here, and wrote \
             nothing into another folder",
            self.path.display()
        ))
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
        command(&format!("train --resume {}", self.path.display()))
    }

    /// Writes the configuration and the plan.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub(super) fn write(&self, plan: &RunPlan, loaded: &Loaded) -> Result<(), Failure> {
        let text = toml::to_string_pretty(&PlanFile { header: plan.header(), plan }).failed()?;
        // The configuration first, and with an atomic rename: from then on the run can be resumed.
        for (name, text) in [(CONFIG, to_toml(loaded)), ("plan.toml", text)] {
            self.replace(name, |file| file.write_all(text.as_bytes()))?;
        }
        Ok(())
    }

    /// Writes the fingerprint of the utterances, with which a resumed run compares its data.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn write_utterances(&self, corpus: &CorpusFingerprint) -> Result<(), Failure> {
        self.replace(UTTERANCES, |file| corpus.write_lines(file))
    }

    /// Writes the file `name` of the folder whole, or not at all.
    fn replace(&self, name: &str, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), Failure> {
        let path = self.path.join(name);
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()));
        replace_file(&path, write).map_err(named).failed()
    }
}

/// The disk of a run's checkpoints: writes nothing if the folder of the run is lost.
#[derive(Debug)]
pub(super) struct RunDisk(pub(super) RunFolder);

impl Disk for RunDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match self.0.is_lost() {
            true => Err(ErrorKind::NotFound.into()),
            false => RealDisk.write(path, bytes),
        }
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

/// Makes the failure for a run that would go on with another seed than it began with.
pub(super) fn other_seed(old: u64, new: u64) -> Failure {
    let message = format!("the run began with seed {old}, and would go on with {new}");
    Failure::invalid(message, "another seed would hold out other utterances: keep the seed")
}

/// Makes the failure for a file of a run that is damaged.
fn unreadable(path: &Path, why: &str) -> Failure {
    Failure::invalid(format!("cannot read {}: {why}", path.display()), "restore the file, or begin a new run")
}

/// Refuses the folder of a run that exists.
fn refuse_used(path: &Path) -> Result<(), Failure> {
    if !path.exists() || is_unused(path) {
        return Ok(());
    }
    let message = format!("there is a run in {} already", path.display());
    let help = format!("choose another --name, or go on with it: --resume {}", path.display());
    Err(Failure::invalid(message, help))
}

/// Makes the folder of a run and the folders above it. Returns false if it exists and is not `reused`.
fn make_folder(path: &Path, reused: bool) -> Result<bool, Failure> {
    let above = path.parent().map_or(Ok(()), fs::create_dir_all);
    match above.and_then(|()| fs::create_dir(path)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(reused),
        Err(error) => {
            let message = format!("cannot make the run folder {}: {error}", path.display());
            let help = match error.kind() {
                ErrorKind::InvalidFilename => "choose a shorter --name",
                _ => "`--set runs_dir=FOLDER` puts runs elsewhere",
            };
            Err(Failure::invalid(message, help))
        }
    }
}

/// Makes a folder in the folder of a run, unless it exists. A run whose folder was deleted does not make it again.
///
/// # Errors
/// A message, if the folder cannot be made.
pub(super) fn make_subfolder(path: &Path) -> Result<(), String> {
    match fs::create_dir(path) {
        Err(error) if !(error.kind() == ErrorKind::AlreadyExists && path.is_dir()) => {
            Err(format!("cannot make {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Returns whether a folder is empty, except for files of a run that was killed before its configuration was complete.
fn is_unused(path: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    let is_remains = |name: &str| REMAINS.contains(&name) || name.starts_with('.') && name.ends_with(".partial");
    entries.all(|entry| entry.is_ok_and(|entry| is_remains(&entry.file_name().to_string_lossy())))
}

/// Returns the first path `runs/TASK-NUMBER` that does not exist.
fn first_free(runs: &Path, task: &str) -> PathBuf {
    (1..).map(|n| runs.join(format!("{task}-{n}"))).find(|path| !path.exists()).expect("numbers do not end")
}
