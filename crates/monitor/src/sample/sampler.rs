//! Takes samples from a source.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Sample;

/// Source of samples: a machine, or a closure in a test.
pub trait SampleSource: Send {
    /// Reads everything once. A source that cannot read a value gives the reason, and it never panics for it.
    ///
    /// `elapsed` is the time since the sampler was created. Rates are differences between two readings, divided by the
    /// difference of their `elapsed`. A sample without a time gets the time of the clock.
    fn read(&mut self, elapsed: Duration) -> Sample;
}

impl<F: FnMut(Duration) -> Sample + Send> SampleSource for F {
    fn read(&mut self, elapsed: Duration) -> Sample {
        self(elapsed)
    }
}

/// Takes samples from a [`SampleSource`].
///
/// ```
/// use plimsoll_monitor::sample::{MachineSource, Sampler};
///
/// let mut sampler = Sampler::new(MachineSource::open());
/// let sample = sampler.sample();
/// assert!(sample.host.memory_total.value().is_some());
/// assert_eq!(sample.gpus.is_empty(), sample.no_gpu.is_some());
/// ```
pub struct Sampler {
    source: Box<dyn SampleSource>,
    start: Instant,
}

impl Sampler {
    /// Creates a sampler of `source`.
    pub fn new(source: impl SampleSource + 'static) -> Self {
        Self { source: Box::new(source), start: Instant::now() }
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Sample {
        let mut sample = self.source.read(self.start.elapsed());
        if sample.time == 0.0 {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            sample.time = (time * 1e3).round() / 1e3;
        }
        sample
    }
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("start", &self.start).finish_non_exhaustive()
    }
}
