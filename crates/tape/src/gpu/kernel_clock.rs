//! Times the kernels of GPUs by their own clocks.

#[cfg(feature = "cube")]
use std::sync::Arc;

#[cfg(feature = "cube")]
use super::observation;
use super::timings::KernelTime;
#[cfg(feature = "cube")]
use super::timings::Timings;

/// Times each kernel that the process launches, on all of its GPUs, until it is finished.
///
/// Kernels run one after another as without a clock, and their times are read when [`read`](Self::read) is called. Each
/// launch costs the host more, so a step takes longer than without a clock. A process has one clock at a time: the last
/// one that was started.
///
/// ```
/// use plimsoll_tape::gpu::KernelClock;
///
/// let clock = KernelClock::start();
/// // Training steps, with a call of `clock.read()` after each.
/// for kernel in clock.finish() {
///     println!("{} x {}: {} s", kernel.count, kernel.name, kernel.seconds);
/// }
/// ```
#[derive(Debug)]
pub struct KernelClock {
    #[cfg(feature = "cube")]
    timings: Arc<Timings>,
}

impl KernelClock {
    /// Begins to time kernels. Without a GPU backend there are none.
    pub fn start() -> Self {
        #[cfg(feature = "cube")]
        {
            let timings = Arc::new(Timings::default());
            observation::start_timing(&timings);
            Self { timings }
        }
        #[cfg(not(feature = "cube"))]
        Self {}
    }

    /// Reads the measurements so far: waits until the device has run the kernels. A device keeps a limited number of
    /// measurements, so call this after each step.
    pub fn read(&self) {
        #[cfg(feature = "cube")]
        self.timings.read();
    }

    /// Ends the clock, and returns the times by name, the longest first.
    pub fn finish(self) -> Vec<KernelTime> {
        #[cfg(feature = "cube")]
        return self.timings.finish();
        #[cfg(not(feature = "cube"))]
        Vec::new()
    }
}

#[cfg(feature = "cube")]
impl Drop for KernelClock {
    fn drop(&mut self) {
        observation::end_timing(&self.timings);
    }
}
