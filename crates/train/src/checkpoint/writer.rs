//! Checkpoints are written by a thread of their own, from a copy, while training goes on.

use std::path::PathBuf;
use std::thread::JoinHandle;

use super::{CheckpointError, CheckpointStore, Snapshot};

/// The step of a checkpoint, and where it is or why it is not.
pub(crate) type Written = (u64, Result<PathBuf, CheckpointError>);

/// Writes one checkpoint at a time.
pub(crate) struct Writer {
    store: CheckpointStore,
    in_progress: Option<(u64, JoinHandle<Result<PathBuf, CheckpointError>>)>,
}

impl Writer {
    pub(crate) fn new(store: CheckpointStore) -> Self {
        Self { store, in_progress: None }
    }

    /// Begins to write `snapshot`. Gives what came of the one before, which is waited for: two copies of a run would take
    /// more memory than was planned.
    pub(crate) fn start(&mut self, snapshot: Snapshot) -> Option<Written> {
        let before = self.wait();
        let (store, step) = (self.store.clone(), snapshot.state.step);
        self.in_progress = Some((step, std::thread::spawn(move || store.save(&snapshot))));
        before
    }

    /// Writes `snapshot` now.
    pub(crate) fn write(&mut self, snapshot: &Snapshot) -> Written {
        (snapshot.state.step, self.store.save(snapshot))
    }

    /// What came of the one that is being written, where it is done.
    pub(crate) fn done(&mut self) -> Option<Written> {
        match &self.in_progress {
            Some((_, thread)) if thread.is_finished() => self.wait(),
            _ => None,
        }
    }

    /// Waits for the one that is being written.
    pub(crate) fn wait(&mut self) -> Option<Written> {
        let (step, thread) = self.in_progress.take()?;
        Some((step, thread.join().expect("the writer does not panic")))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
