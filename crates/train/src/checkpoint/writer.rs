//! Writer of checkpoints on a thread of its own, from a copy, while training goes on.

use std::path::PathBuf;
use std::thread::JoinHandle;

use super::{CheckpointError, CheckpointStore, Snapshot};

/// Step of a checkpoint, and its folder, or the error if it was not written.
pub(crate) type Written = (u64, Result<PathBuf, CheckpointError>);

/// Writes one checkpoint at a time in the background.
pub(crate) struct Writer {
    store: CheckpointStore,
    in_progress: Option<(u64, JoinHandle<Result<PathBuf, CheckpointError>>)>,
}

impl Writer {
    pub(crate) fn new(store: CheckpointStore) -> Self {
        Self { store, in_progress: None }
    }

    /// Starts to write `snapshot` in the background. Waits for the previous write and returns its result, `None` if
    /// there was none: two copies of a run would take more memory than planned.
    pub(crate) fn start(&mut self, snapshot: Snapshot) -> Option<Written> {
        let before = self.wait();
        let (store, step) = (self.store.clone(), snapshot.state.step);
        self.in_progress = Some((step, std::thread::spawn(move || store.save(&snapshot))));
        before
    }

    /// Writes `snapshot` and returns when it is written.
    pub(crate) fn write(&mut self, snapshot: &Snapshot) -> Written {
        (snapshot.state.step, self.store.save(snapshot))
    }

    /// Returns the result of the current write if it is done; `None` if it goes on, or if there is none.
    pub(crate) fn done(&mut self) -> Option<Written> {
        match &self.in_progress {
            Some((_, thread)) if thread.is_finished() => self.wait(),
            _ => None,
        }
    }

    /// Waits for the current write and returns its result; `None` if there is none.
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
