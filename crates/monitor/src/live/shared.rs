//! The newest state of a run, shared between threads.

use std::sync::{Arc, Mutex, PoisonError};

use super::state::RunView;

/// The newest state of a run, shared between the thread that feeds it and the threads that show it.
///
/// A reader holds a snapshot of its own: it never blocks the writer.
///
/// ```
/// use plimsoll_monitor::live::{LiveRun, RunView};
///
/// let live = LiveRun::default();
/// live.publish(RunView::new("toy"));
/// assert_eq!(live.latest().name(), "toy");
/// ```
#[derive(Clone, Debug, Default)]
pub struct LiveRun(Arc<Mutex<Arc<RunView>>>);

impl LiveRun {
    /// Replaces the state.
    pub fn publish(&self, state: RunView) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    /// Returns the newest state.
    pub fn latest(&self) -> Arc<RunView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
