//! Checkpoints that survive a kill at any byte: written to a partial folder, synced, checksummed and renamed.

mod disk;
mod error;
mod read;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_core::{Position, writes};
use plimsoll_tape::NamedTensor;
use serde::{Deserialize, Deserializer, Serialize};

use crate::weights::{state_to_file, to_file};
use crate::{GovernorState, LossScale, Plateau, StateTensor};
pub use disk::{Disk, RealDisk};
use disk::{checksum, recover_folder};
pub use error::{CheckpointError, NotBest};
use read::checksum_of_all;
pub(crate) use writer::{Writer, Written};

/// State of a run besides its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// Format version of the file that stores this state.
    pub format: u32,
    /// Number of steps taken in the run.
    pub step: u64,
    /// Position in the training data.
    pub position: Position,
    /// Seed of the run; all random numbers follow from it and the step.
    pub seed: u64,
    /// Limits on the number of utterances computed at once, which the governor learned.
    pub governor: GovernorState,
    /// Device and budget for which the governor learned its limits; on other devices and budgets they do not apply.
    pub learned_on: String,
    /// Loss scale of the run, which adapts in fp16.
    pub scale: LossScale,
    /// Number of updates of the averaged weights, if an average is kept.
    pub ema_steps: u64,
    /// Reduction of the learning rate by plateaus.
    pub plateau: Plateau,
    /// Step of the last validation.
    pub validated: u64,
    /// Validations in a row without improvement.
    pub stale: u32,
    /// Failed steps in a row.
    pub failures: u32,
    /// Seconds that the run spent in steps and in waiting for batches.
    pub train_seconds: f64,
    /// Number of steps that the limit of time allows, as measured; `None` without such a limit, and before the first measure.
    /// The learning rate ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_steps: Option<u64>,
    /// Best validation score so far, lower is better; `None` before the first finite score.
    pub best: Option<f64>,
    /// Step of the best validation score; `None` before the first finite score.
    pub best_step: Option<u64>,
    /// Best validation scores, best first, each as (step, score, tie): of equal scores the one with the lowest tie is the
    /// best. Their number is the number of checkpoints that the store keeps for the best scores.
    #[serde(deserialize_with = "best_scores")]
    pub best_scores: Vec<(u64, f64, f64)>,
    /// Identity of the run, by which its checkpoints differ from those of other runs. Empty in a run of an older version.
    #[serde(default)]
    pub run: String,
    /// Values that decide the batches of the run, by name, such as `data.batch_size`. The caller compares them when it
    /// resumes the run. Empty in a run of an older version.
    #[serde(default)]
    pub fingerprint: BTreeMap<String, String>,
    /// Steps beyond the number of batches of the epochs that are done. Not 0 after the data changed during a run.
    #[serde(default)]
    pub extra_steps: i64,
}

/// Tie of a score of which nothing else is known. A file cannot hold infinity.
pub(crate) const TIE_MAX: f64 = 1e300;

/// Reads best scores, which older versions wrote without a tie.
fn best_scores<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(u64, f64, f64)>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Whole(u64, f64, f64),
        WithoutTie(u64, f64),
    }
    let stored = Vec::<Stored>::deserialize(deserializer)?;
    let read = |stored: Stored| match stored {
        Stored::Whole(step, value, tie) => (step, value, tie),
        // The next equal score is the better one, because a run learns.
        Stored::WithoutTie(step, value) => (step, value, TIE_MAX),
    };
    Ok(stored.into_iter().map(read).collect())
}

/// Complete state of a run after a step, ready to be saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// State of the run besides its tensors.
    pub state: RunState,
    /// Weights of the model.
    pub weights: Vec<NamedTensor>,
    /// State tensors of the optimizer.
    pub optimizer: Vec<StateTensor>,
    /// Averaged weights; `None` if no average is kept.
    pub ema: Option<Vec<NamedTensor>>,
}

/// A checkpoint read from disk and verified by its checksums.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// State of the run besides its tensors.
    pub state: RunState,
    /// Weights of the model.
    pub weights: Vec<NamedTensor>,
    /// State tensors of the optimizer.
    pub optimizer: Vec<StateTensor>,
    /// Averaged weights; `None` if no average was kept.
    pub ema: Option<Vec<NamedTensor>>,
    /// Folder that the checkpoint was read from.
    pub path: PathBuf,
}

impl Checkpoint {
    /// Returns the weights to use the model with: the averaged weights if there are any.
    pub fn evaluation_weights(self) -> Vec<NamedTensor> {
        self.ema.unwrap_or(self.weights)
    }
}

/// Selection of the checkpoints of a run whose weights are averaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointSelection {
    /// The given number of newest checkpoints.
    Last(usize),
    /// The given number of checkpoints with the best validation scores.
    Best(usize),
}

/// Folder of a run's checkpoints, with rules for which checkpoints are kept.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    folder: PathBuf,
    keep: usize,
    keep_best: usize,
    disk: Arc<dyn Disk>,
    /// Identity that every checkpoint must have; `None` if any checkpoint is read.
    run: Option<String>,
}

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const EMA: &str = "ema.safetensors";
const STATE: &str = "state.json";
const SUMS: &str = "sums.json";
/// Name of the checksum of a whole checkpoint, in the file of checksums.
const WHOLE: &str = "checkpoint";
const FORMAT: u32 = 3;
/// Oldest format that can be read: without the identity of the run and without [`WHOLE`].
const OLDEST_FORMAT: u32 = 2;

impl CheckpointStore {
    /// Makes a store in `folder` that keeps the last `keep` checkpoints (at least 1) and the best checkpoint.
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Self {
        Self { folder: folder.into(), keep: keep.max(1), keep_best: 1, disk: Arc::new(RealDisk), run: None }
    }

    /// Refuses to read checkpoints whose [`RunState::run`] is not `run`. The default reads checkpoints of any run.
    #[must_use]
    pub fn for_run(self, run: impl Into<String>) -> Self {
        Self { run: Some(run.into()), ..self }
    }

    /// Sets how many checkpoints with the best validation scores are kept (at least 1).
    #[must_use]
    pub fn with_keep_best(self, count: usize) -> Self {
        Self { keep_best: count.max(1), ..self }
    }

    /// Sets the disk to which checkpoints are written. Default: the file system.
    #[must_use]
    pub fn with_disk(self, disk: impl Disk + 'static) -> Self {
        Self { disk: Arc::new(disk), ..self }
    }

    /// Returns the folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns how many checkpoints with the best validation scores are kept.
    pub fn best_kept(&self) -> usize {
        self.keep_best
    }

    /// Writes a checkpoint and returns its folder, then removes old checkpoints, except the last and the best.
    ///
    /// The checkpoint exists only after its folder is renamed. A kill or a full disk at any byte leaves the earlier
    /// checkpoints as they were.
    ///
    /// # Errors
    /// If a file cannot be written or renamed. The partial folder is removed then.
    pub fn save(&self, snapshot: &Snapshot) -> Result<PathBuf, CheckpointError> {
        let path = self.folder.join(folder_name(snapshot.state.step));
        let partial = self.folder.join(format!(".partial-{}", folder_name(snapshot.state.step)));
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| CheckpointError::Io { path, source }
        };
        let _write = writes::begin();
        recover_folder(&self.folder).map_err(io(&self.folder))?;
        // Not the folders above: a run whose folder was deleted does not make it again.
        make_folder(&self.folder).map_err(io(&self.folder))?;
        make_folder(&partial).map_err(io(&partial))?;
        if let Err(error) = self.fill(&partial, snapshot) {
            // The partial files take space that the user may need.
            let _ = fs::remove_dir_all(&partial);
            return Err(error);
        }
        fs::File::open(&partial).and_then(|folder| folder.sync_all()).map_err(io(&partial))?;
        if path.exists() {
            // The old one stays complete until the new one has its name; `recover_folder` restores it if that never
            // happens.
            let aside = self.folder.join(format!(".aside-{}", folder_name(snapshot.state.step)));
            fs::rename(&path, &aside).map_err(io(&aside))?;
        }
        fs::rename(&partial, &path).map_err(io(&path))?;
        // A rename is durable only after a sync of the folder.
        fs::File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(io(&self.folder))?;
        recover_folder(&self.folder).map_err(io(&self.folder))?;
        // The checkpoint is written, whether or not older ones can be removed.
        let _ = self.prune(&snapshot.state);
        Ok(path)
    }

    fn fill(&self, partial: &Path, snapshot: &Snapshot) -> Result<(), CheckpointError> {
        let mut sums = BTreeMap::new();
        let mut write = |name: &'static str, bytes: &[u8]| {
            let path = partial.join(name);
            sums.insert(name, checksum(bytes));
            self.disk.write(&path, bytes).map_err(|source| CheckpointError::Io { path, source })
        };
        let tensors = |name: &str, tensors: &[NamedTensor]| to_file(&partial.join(name), tensors);
        write(WEIGHTS, &tensors(WEIGHTS, &snapshot.weights)?)?;
        write(OPTIMIZER, &state_to_file(&partial.join(OPTIMIZER), &snapshot.optimizer)?)?;
        if let Some(ema) = &snapshot.ema {
            write(EMA, &tensors(EMA, ema)?)?;
        }
        let state = RunState { format: FORMAT, ..snapshot.state.clone() };
        write(STATE, &serde_json::to_vec_pretty(&state).expect("a state is plain data"))?;
        let whole = checksum_of_all(&sums, &state);
        sums.insert(WHOLE, whole);
        let text = serde_json::to_vec_pretty(&sums).expect("sums are plain data");
        let path = partial.join(SUMS);
        self.disk.write(&path, &text).map_err(|source| CheckpointError::Io { path, source })
    }

    /// Reads the newest valid checkpoint, and returns it with the errors of damaged newer checkpoints.
    ///
    /// # Errors
    /// If there is no valid checkpoint, or the newest has another format version or belongs to another run or step.
    pub fn newest(&self) -> Result<(Checkpoint, Vec<CheckpointError>), CheckpointError> {
        let mut damaged = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match self.read(step) {
                Ok(checkpoint) => return Ok((checkpoint, damaged)),
                // A checkpoint of another version or run is intact: to skip it would hide a mistake.
                Err(error @ (CheckpointError::Version { .. } | CheckpointError::Foreign { .. })) => return Err(error),
                Err(error) => damaged.push(error),
            }
        }
        match damaged.into_iter().next() {
            Some(error) => Err(error),
            None => Err(CheckpointError::None { path: self.folder.clone() }),
        }
    }

    /// Reads the checkpoint with the best score, or the newest if no score is known.
    ///
    /// If a checkpoint cannot be read, another one is returned, with the reasons why it may not be the best. Without such a
    /// reason it is the best.
    ///
    /// # Errors
    /// If there is no valid checkpoint, or the newest or the best has another format version or belongs to another run or
    /// step.
    pub fn best(&self) -> Result<(Checkpoint, Vec<NotBest>), CheckpointError> {
        let (newest, damaged) = self.newest()?;
        let known = newest.state.step;
        let mut doubts: Vec<NotBest> =
            damaged.into_iter().map(|source| NotBest::NewerUnreadable { known, source }).collect();
        let Some(best) = newest.state.best_step.filter(|best| *best != known) else { return Ok((newest, doubts)) };
        match self.clone().for_run(&newest.state.run).read(best) {
            Ok(checkpoint) => Ok((checkpoint, doubts)),
            Err(error @ (CheckpointError::Version { .. } | CheckpointError::Foreign { .. })) => Err(error),
            Err(source) => {
                doubts.push(NotBest::Unreadable { best, used: known, source });
                Ok((newest, doubts))
            }
        }
    }

    /// Computes the mean weights of several checkpoints, and returns them with the steps of the checkpoints.
    ///
    /// The mean of the last or the best few checkpoints is often a better model than each of these checkpoints.
    ///
    /// # Errors
    /// If no checkpoint matches `pick`, one cannot be read, or they have different tensors.
    pub fn average(&self, pick: CheckpointSelection) -> Result<(Vec<NamedTensor>, Vec<u64>), CheckpointError> {
        let there = self.steps()?;
        let steps: Vec<u64> = match pick {
            CheckpointSelection::Last(count) => there.iter().rev().take(count.max(1)).copied().collect(),
            CheckpointSelection::Best(count) => {
                let (newest, _) = self.newest()?;
                let scores = newest.state.best_scores.iter().map(|(step, ..)| *step);
                scores.filter(|step| there.contains(step)).take(count.max(1)).collect()
            }
        };
        let mut steps = steps.into_iter();
        let first = steps.next().ok_or_else(|| CheckpointError::None { path: self.folder.clone() })?;
        let mut sums: Vec<(NamedTensor, Vec<f64>)> = Vec::new();
        let checkpoint = self.read(first)?;
        let same_run = self.clone().for_run(&checkpoint.state.run);
        for tensor in checkpoint.evaluation_weights() {
            let values = tensor.values.iter().copied().map(f64::from).collect();
            sums.push((tensor, values));
        }
        let mut taken = vec![first];
        for step in steps {
            self.add(&mut sums, same_run.read(step)?.evaluation_weights())?;
            taken.push(step);
        }
        let count = taken.len() as f64;
        let mean = |(tensor, values): (NamedTensor, Vec<f64>)| NamedTensor {
            values: values.into_iter().map(|value| (value / count) as f32).collect(),
            ..tensor
        };
        Ok((sums.into_iter().map(mean).collect(), taken))
    }

    fn add(&self, sums: &mut [(NamedTensor, Vec<f64>)], new: Vec<NamedTensor>) -> Result<(), CheckpointError> {
        let unlike = |name: &str| CheckpointError::Unlike { path: self.folder.clone(), name: name.into() };
        let mut new: BTreeMap<String, NamedTensor> = new.into_iter().map(|one| (one.name.clone(), one)).collect();
        for (tensor, sum) in sums {
            let one = new.remove(&tensor.name).filter(|one| one.shape == tensor.shape);
            let one = one.ok_or_else(|| unlike(&tensor.name))?;
            sum.iter_mut().zip(one.values).for_each(|(sum, value)| *sum += f64::from(value));
        }
        match new.into_keys().next() {
            Some(name) => Err(unlike(&name)),
            None => Ok(()),
        }
    }

    /// Lists the steps that have a checkpoint, in ascending order.
    ///
    /// # Errors
    /// If the folder cannot be read. A missing folder has no steps and is no error.
    pub fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let io = |source| CheckpointError::Io { path: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(io(source)),
        };
        let step = |name: &str| name.strip_prefix("step-").or(name.strip_prefix(".aside-step-"))?.parse().ok();
        let mut steps: Vec<u64> =
            entries.flatten().filter_map(|entry| step(&entry.file_name().to_string_lossy())).collect();
        steps.sort_unstable();
        steps.dedup();
        Ok(steps)
    }

    fn prune(&self, state: &RunState) -> Result<(), CheckpointError> {
        let steps = self.steps()?;
        let kept = state.best_scores.iter().take(self.keep_best).map(|(step, ..)| *step).chain(state.best_step);
        let kept: Vec<u64> = kept.collect();
        // Checkpoints of later steps are damaged, or the run continued from before them; they do not count.
        let steps: Vec<u64> = steps.into_iter().filter(|step| *step <= state.step).collect();
        let old = &steps[..steps.len().saturating_sub(self.keep)];
        for &step in old.iter().filter(|step| !kept.contains(step)) {
            let path = self.folder.join(folder_name(step));
            let gone = self.folder.join(format!(".gone-{}", folder_name(step)));
            // Renamed first: a half removed folder would look like a damaged checkpoint.
            let removed = fs::rename(&path, &gone).and_then(|()| fs::remove_dir_all(&gone));
            removed.map_err(|source| CheckpointError::Io { path, source })?;
        }
        Ok(())
    }
}

/// Makes a folder in a folder that exists, unless it is there.
fn make_folder(path: &Path) -> std::io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn folder_name(step: u64) -> String {
    format!("step-{step:07}")
}
