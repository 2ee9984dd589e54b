//! Writer of checkpoints on a thread of its own, from a copy, while training goes on.

use std::path::PathBuf;
use std::thread::JoinHandle;

use plimsoll_core::Position;

use super::{CheckpointError, CheckpointStore, Snapshot};

/// A checkpoint that was written, or was to be written.
pub(crate) struct Written {
    /// Step of the checkpoint.
    pub(crate) step: u64,
    /// Position in the data that the checkpoint holds.
    pub(crate) position: Position,
    /// Folder of the checkpoint, or the error because of which it was not written.
    pub(crate) result: Result<PathBuf, CheckpointError>,
}

/// Writes one checkpoint at a time in the background.
pub(crate) struct Writer {
    store: CheckpointStore,
    in_progress: Option<Writing>,
}

/// A checkpoint that is being written: its step, its position in the data, and its thread.
struct Writing(u64, Position, JoinHandle<Result<PathBuf, CheckpointError>>);

impl Writer {
    pub(crate) fn new(store: CheckpointStore) -> Self {
        Self { store, in_progress: None }
    }

    /// Starts to write `snapshot` in the background. Waits for the previous write and returns its result, `None` if
    /// there was none: two copies of a run would take more memory than planned.
    pub(crate) fn start(&mut self, snapshot: Snapshot) -> Option<Written> {
        let before = self.wait();
        let (store, step, position) = (self.store.clone(), snapshot.state.step, snapshot.state.position);
        self.in_progress = Some(Writing(step, position, std::thread::spawn(move || store.save(&snapshot))));
        before
    }

    /// Writes `snapshot` and returns when it is written.
    pub(crate) fn write(&mut self, snapshot: &Snapshot) -> Written {
        let (step, position) = (snapshot.state.step, snapshot.state.position);
        Written { step, position, result: self.store.save(snapshot) }
    }

    /// Returns the result of the current write if it is done; `None` if it goes on, or if there is none.
    pub(crate) fn done(&mut self) -> Option<Written> {
        match &self.in_progress {
            Some(Writing(.., thread)) if thread.is_finished() => self.wait(),
            _ => None,
        }
    }

    /// Waits for the current write and returns its result; `None` if there is none.
    pub(crate) fn wait(&mut self) -> Option<Written> {
        let Writing(step, position, thread) = self.in_progress.take()?;
        Some(Written { step, position, result: thread.join().expect("the writer does not panic") })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
