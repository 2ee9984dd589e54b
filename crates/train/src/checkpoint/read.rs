//! Reads checkpoints, and checks that they are complete and belong to their run and step.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plimsoll_core::read_regular_file;
use serde::Deserialize;

use super::disk::checksum;
use super::{
    Checkpoint, CheckpointError, CheckpointStore, EMA, FORMAT, OLDEST_FORMAT, OPTIMIZER, RunState, STATE, SUMS,
    WEIGHTS, WHOLE, folder_name,
};
use crate::weights::{read_state, read_weights};

impl CheckpointStore {
    /// Reads the checkpoint of `step`.
    ///
    /// # Errors
    /// If it is missing, damaged, of another format version, or belongs to another run or step.
    pub fn read(&self, step: u64) -> Result<Checkpoint, CheckpointError> {
        let files = CheckpointFiles::open(self.path_of(step))?;
        let has_mean = files.sums.contains_key(EMA);
        for file in [WEIGHTS, OPTIMIZER].into_iter().chain(has_mean.then_some(EMA)) {
            files.read(file)?;
        }
        let state = self.state_in(&files, step)?;
        let path = files.path;
        let weights = read_weights(&path.join(WEIGHTS))?;
        let optimizer = read_state(&path.join(OPTIMIZER))?;
        let ema = if has_mean { Some(read_weights(&path.join(EMA))?) } else { None };
        Ok(Checkpoint { state, weights, optimizer, ema, path })
    }

    /// Reads the state of the newest checkpoint whose state is not damaged, without its tensors; `None` if there is no
    /// such checkpoint.
    ///
    /// # Errors
    /// If the folder cannot be read, or a checkpoint has another format version or belongs to another run or step.
    pub fn newest_state(&self) -> Result<Option<RunState>, CheckpointError> {
        for step in self.steps()?.into_iter().rev() {
            let state = CheckpointFiles::open(self.path_of(step)).and_then(|files| self.state_in(&files, step));
            match state {
                Ok(state) => return Ok(Some(state)),
                Err(error @ (CheckpointError::Version { .. } | CheckpointError::Foreign { .. })) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Returns the folder of the checkpoint of `step`, which is another one after a kill between two renames.
    fn path_of(&self, step: u64) -> PathBuf {
        let path = self.folder.join(folder_name(step));
        let aside = self.folder.join(format!(".aside-{}", folder_name(step)));
        if !path.exists() && aside.exists() { aside } else { path }
    }

    /// Reads the state in `files`, which lie in the folder for `step`.
    fn state_in(&self, files: &CheckpointFiles, step: u64) -> Result<RunState, CheckpointError> {
        let text = files.read(STATE)?;
        let damaged = |error: serde_json::Error| files.damaged(STATE, error.to_string());
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = serde_json::from_slice(&text).map_err(damaged)?;
        if !(OLDEST_FORMAT..=FORMAT).contains(&format) {
            return Err(CheckpointError::Version { path: files.path.join(STATE), found: format });
        }
        let state: RunState = serde_json::from_slice(&text).map_err(damaged)?;
        if format > OLDEST_FORMAT && files.sums.get(WHOLE) != Some(&checksum_of_all(&files.sums, &state)) {
            return Err(files.damaged(SUMS, "its files are not of one checkpoint".into()));
        }
        let foreign = |reason: String| CheckpointError::Foreign { path: files.path.clone(), reason };
        if state.step != step {
            return Err(foreign(format!("it was written at step {}", state.step)));
        }
        match &self.run {
            Some(run) if *run != state.run => Err(foreign("it was written by another run".into())),
            _ => Ok(state),
        }
    }
}

/// Folder of a checkpoint with its checksums.
struct CheckpointFiles {
    path: PathBuf,
    sums: BTreeMap<String, String>,
}

impl CheckpointFiles {
    fn open(path: PathBuf) -> Result<Self, CheckpointError> {
        let files = Self { path, sums: BTreeMap::new() };
        let text = read_regular_file(files.path.join(SUMS)).map_err(|error| files.damaged(SUMS, error.to_string()))?;
        let sums = serde_json::from_slice(&text).map_err(|error| files.damaged(SUMS, error.to_string()))?;
        Ok(Self { sums, ..files })
    }

    /// Reads a file and compares its checksum.
    fn read(&self, file: &str) -> Result<Vec<u8>, CheckpointError> {
        let bytes = read_regular_file(self.path.join(file)).map_err(|error| self.damaged(file, error.to_string()))?;
        if self.sums.get(file) != Some(&checksum(&bytes)) {
            return Err(self.damaged(file, "its checksum does not match".into()));
        }
        Ok(bytes)
    }

    fn damaged(&self, file: &str, reason: String) -> CheckpointError {
        CheckpointError::Damaged { path: self.path.join(file), reason }
    }
}

/// Computes the checksum of a whole checkpoint: of the identity of the run, the step, and the sums of all files.
pub(super) fn checksum_of_all<N: AsRef<str>>(sums: &BTreeMap<N, String>, state: &RunState) -> String {
    let files = sums.iter().filter(|(name, _)| name.as_ref() != WHOLE);
    let lines: String = files.map(|(name, sum)| format!("{} {sum}\n", name.as_ref())).collect();
    checksum(format!("{}\n{}\n{lines}", state.run, state.step).as_bytes())
}
