//! Checkpoints that survive a kill at any byte: written aside, synced, renamed, and summed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_core::Position;
use plimsoll_tape::NamedTensor;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::weights::{WeightsError, read_weights, write_synced, write_weights};

/// What a run must remember besides its tensors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    /// The version of this file's layout.
    pub format: u32,
    /// Steps taken.
    pub step: u64,
    /// Where the data stands.
    pub position: Position,
    /// The run's seed: all randomness follows from it and from the step.
    pub seed: u64,
    /// Utterances computed at once, as the governor learned it.
    pub limit: usize,
    /// Seconds spent in steps.
    pub train_seconds: f64,
    /// The best score so far, lower being better.
    pub best: Option<f64>,
    /// The step of the best score.
    pub best_step: Option<u64>,
}

/// A checkpoint, read and found whole.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// What the run remembered.
    pub state: RunState,
    /// The model's values.
    pub weights: Vec<NamedTensor>,
    /// The optimizer's state.
    pub optimizer: Vec<NamedTensor>,
    /// Where it was read from.
    pub path: PathBuf,
}

/// Why a checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system refused.
    #[error("cannot access {}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is none.
    #[error("no checkpoint in {}", path.display())]
    None {
        /// The folder that was searched.
        path: PathBuf,
    },
    /// A file is not what was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor file cannot be written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
}

/// The folder of a run's checkpoints.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    folder: PathBuf,
    keep: usize,
}

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const SUMS: &str = "sums.json";
const FORMAT: u32 = 1;

impl CheckpointStore {
    /// The store in `folder`, which keeps the last `keep` checkpoints and the best.
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Self {
        Self { folder: folder.into(), keep: keep.max(1) }
    }

    /// The folder of the store.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a checkpoint, then removes the ones that are neither the last few nor the best.
    pub fn save(
        &self,
        state: &RunState,
        weights: &[NamedTensor],
        optimizer: &[NamedTensor],
    ) -> Result<PathBuf, CheckpointError> {
        let path = self.folder.join(name_of(state.step));
        let partial = self.folder.join(format!(".partial-{}", name_of(state.step)));
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| CheckpointError::Io { path, source }
        };
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(io(&partial))?;
        }
        fs::create_dir_all(&partial).map_err(io(&partial))?;
        write_weights(&partial.join(WEIGHTS), weights)?;
        write_weights(&partial.join(OPTIMIZER), optimizer)?;
        let state = RunState { format: FORMAT, ..state.clone() };
        let text = serde_json::to_vec_pretty(&state).expect("a state is plain data");
        write_synced(&partial.join(STATE), &text).map_err(io(&partial))?;
        let mut sums = BTreeMap::new();
        for file in [WEIGHTS, OPTIMIZER, STATE] {
            let bytes = fs::read(partial.join(file)).map_err(io(&partial))?;
            sums.insert(file, sum_of(&bytes));
        }
        let text = serde_json::to_vec_pretty(&sums).expect("sums are plain data");
        write_synced(&partial.join(SUMS), &text).map_err(io(&partial))?;
        if path.exists() {
            fs::remove_dir_all(&path).map_err(io(&path))?;
        }
        fs::rename(&partial, &path).map_err(io(&path))?;
        // The rename is on the disk only when the folder is.
        fs::File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(io(&self.folder))?;
        self.prune(state.best_step)?;
        Ok(path)
    }

    /// The newest whole checkpoint, and the damaged ones that were passed over on the way to it.
    pub fn newest(&self) -> Result<(Checkpoint, Vec<CheckpointError>), CheckpointError> {
        let mut damaged = Vec::new();
        for step in self.steps()?.into_iter().rev() {
            match read_checkpoint(&self.folder.join(name_of(step))) {
                Ok(checkpoint) => return Ok((checkpoint, damaged)),
                Err(error) => damaged.push(error),
            }
        }
        match damaged.into_iter().next() {
            Some(error) => Err(error),
            None => Err(CheckpointError::None { path: self.folder.clone() }),
        }
    }

    /// The checkpoint of the best score, or the newest one where no score was taken or the best is damaged.
    pub fn best(&self) -> Result<Checkpoint, CheckpointError> {
        let (newest, _) = self.newest()?;
        match newest.state.best_step {
            Some(step) if step != newest.state.step => {
                Ok(read_checkpoint(&self.folder.join(name_of(step))).unwrap_or(newest))
            }
            _ => Ok(newest),
        }
    }

    /// The steps that have a checkpoint, in order.
    fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(CheckpointError::Io { path: self.folder.clone(), source }),
        };
        let step = |name: &str| name.strip_prefix("step-")?.parse().ok();
        let mut steps: Vec<u64> =
            entries.flatten().filter_map(|entry| step(&entry.file_name().to_string_lossy())).collect();
        steps.sort_unstable();
        Ok(steps)
    }

    fn prune(&self, best: Option<u64>) -> Result<(), CheckpointError> {
        let steps = self.steps()?;
        let old = &steps[..steps.len().saturating_sub(self.keep)];
        for &step in old.iter().filter(|step| Some(**step) != best) {
            let path = self.folder.join(name_of(step));
            fs::remove_dir_all(&path).map_err(|source| CheckpointError::Io { path, source })?;
        }
        Ok(())
    }
}

fn name_of(step: u64) -> String {
    format!("step-{step:07}")
}

fn sum_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_checkpoint(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let damaged = |file: &str, reason: String| CheckpointError::Damaged { path: path.join(file), reason };
    let read = |file: &str| fs::read(path.join(file)).map_err(|error| damaged(file, error.to_string()));
    let sums: BTreeMap<String, String> =
        serde_json::from_slice(&read(SUMS)?).map_err(|error| damaged(SUMS, error.to_string()))?;
    for file in [WEIGHTS, OPTIMIZER, STATE] {
        if sums.get(file) != Some(&sum_of(&read(file)?)) {
            return Err(damaged(file, "its sum is not the one that was written".into()));
        }
    }
    let state: RunState = serde_json::from_slice(&read(STATE)?).map_err(|error| damaged(STATE, error.to_string()))?;
    if state.format != FORMAT {
        return Err(damaged(STATE, format!("it has format {}, and this version reads {FORMAT}", state.format)));
    }
    let weights = read_weights(&path.join(WEIGHTS))?;
    let optimizer = read_weights(&path.join(OPTIMIZER))?;
    Ok(Checkpoint { state, weights, optimizer, path: path.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(value: f32) -> Vec<NamedTensor> {
        vec![NamedTensor { name: "w".into(), shape: vec![1], values: vec![value] }]
    }

    fn store_of(steps: &[u64], keep: usize, best_step: Option<u64>) -> (tempfile::TempDir, CheckpointStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::new(folder.path().join("checkpoints"), keep);
        for &step in steps {
            let state = RunState { step, best_step, ..RunState::default() };
            store.save(&state, &tensors(step as f32), &tensors(0.5)).unwrap();
        }
        (folder, store)
    }

    #[test]
    fn the_newest_comes_back_and_the_best_is_kept() {
        let (_folder, store) = store_of(&[1, 2, 3, 4], 2, Some(1));
        assert_eq!(store.steps().unwrap(), [1, 3, 4]);
        let (newest, damaged) = store.newest().unwrap();
        assert_eq!((newest.state.step, newest.weights, damaged.len()), (4, tensors(4.0), 0));
        assert_eq!(store.best().unwrap().state.step, 1);
    }

    #[test]
    fn damage_anywhere_is_found_and_the_one_before_is_used() {
        for file in [WEIGHTS, OPTIMIZER, STATE, SUMS] {
            let (_folder, store) = store_of(&[1, 2], 2, None);
            let path = store.folder().join("step-0000002").join(file);
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
            let (newest, damaged) = store.newest().unwrap();
            assert_eq!(newest.state.step, 1, "{file}");
            assert!(damaged[0].to_string().contains("is damaged"), "{}", damaged[0]);
        }
    }

    #[test]
    fn a_write_that_was_cut_off_is_not_there() {
        let (_folder, store) = store_of(&[1], 2, None);
        fs::create_dir(store.folder().join(".partial-step-0000002")).unwrap();
        assert_eq!(store.newest().unwrap().0.state.step, 1);
        let empty = CheckpointStore::new("nowhere", 1).newest().unwrap_err();
        assert_eq!(empty.to_string(), "no checkpoint in nowhere");
    }
}
