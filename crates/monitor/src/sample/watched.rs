//! The process whose use of the machine samples show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Process whose use of the machine samples show beside that of all others. Clones share it, so that a program can change it
/// while a thread samples.
#[derive(Clone, Debug)]
pub struct WatchedProcess(Arc<AtomicU32>);

impl WatchedProcess {
    /// Watches this process.
    pub fn this() -> Self {
        Self(Arc::new(AtomicU32::new(std::process::id())))
    }

    /// Watches no process: what samples would say of it is missing.
    pub fn none() -> Self {
        Self(Arc::new(AtomicU32::new(0)))
    }

    /// Watches the process with this number on this machine, or none.
    pub fn set(&self, pid: Option<u32>) {
        self.0.store(pid.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns the number of the process; `None` if no process is watched.
    pub fn pid(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }
}
