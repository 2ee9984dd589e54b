//! Time limits of a replica that waits for others.

use std::time::Duration;

/// How long a replica waits for others, and how it finds out that one is dead.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_mpi::Limits;
///
/// let limits = Limits::default().with_silence(Duration::from_secs(20));
/// assert_eq!(limits.wait(), Duration::from_secs(1800));
/// assert_eq!(limits.beat(), Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    wait: Duration,
    silence: Duration,
}

/// A step, a validation or a checkpoint of another replica takes minutes at most. The same limit as for threads.
const WAIT: Duration = Duration::from_secs(30 * 60);
/// Longer than a node swaps or a network reconnects.
const SILENCE: Duration = Duration::from_secs(60);
/// Heartbeats in the time in which one must arrive: that many can be late or lost.
const BEATS: u32 = 20;

impl Default for Limits {
    fn default() -> Self {
        Self { wait: WAIT, silence: SILENCE }
    }
}

impl Limits {
    /// Sets the longest time in which an operation may receive nothing. Default: 30 minutes.
    #[must_use]
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Sets the time without any sign of life after which a rank counts as dead. Default: 60 seconds.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// Returns the longest time in which an operation may receive nothing.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns the time without any sign of life after which a rank counts as dead.
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Returns the time between two heartbeats.
    pub fn beat(&self) -> Duration {
        self.silence / BEATS
    }
}
