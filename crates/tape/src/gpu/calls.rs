//! Counts what the host asks of GPUs.

use super::{counts, observation};

/// What the host asked of GPUs. Each call costs the host some microseconds, however small its work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Number of kernels that were launched.
    pub launches: u64,
    /// Number of tensors that were copied from the host.
    pub uploads: u64,
}

impl Calls {
    /// Returns the calls after `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self { launches: self.launches - before.launches, uploads: self.uploads - before.uploads }
    }
}

/// Counts the calls to GPUs while it exists. There may be several counters.
///
/// The counts are those of the whole process, all of its GPUs together. Kernels that are tried for tuning count too.
///
/// ```
/// use plimsoll_tape::gpu::CallCounter;
///
/// let counter = CallCounter::new();
/// let before = counter.calls();
/// // A training step.
/// if let Some((now, before)) = counter.calls().zip(before) {
///     println!("{} kernels", now.since(before).launches);
/// }
/// ```
#[derive(Debug)]
pub struct CallCounter(());

impl CallCounter {
    /// Begins to count.
    #[expect(clippy::new_without_default, reason = "a counter changes the state of the process")]
    pub fn new() -> Self {
        observation::add_counter();
        Self(())
    }

    /// Returns the calls so far. Only differences mean anything. `None` without a GPU backend.
    pub fn calls(&self) -> Option<Calls> {
        let calls = Calls { launches: counts::launches(), uploads: counts::uploads() };
        cfg!(feature = "cube").then_some(calls)
    }
}

impl Drop for CallCounter {
    fn drop(&mut self) {
        observation::remove_counter();
    }
}
