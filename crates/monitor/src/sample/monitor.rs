//! Samples in a thread of its own, without any influence on the run.

use std::any::Any;
use std::fs::read_to_string;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::Sample;
use super::machine::MachineSource;
use super::sampler::Sampler;
use super::summary::{MonitorCost, MonitorSummary, SummaryCollector};

/// Shortest interval between two samples.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Samples at an interval until it is stopped or dropped. It only reads: it never changes the run or the machine.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_monitor::sample::Monitor;
///
/// let monitor = Monitor::start(Duration::from_secs(1));
/// // The training runs here.
/// let summary = monitor.stop();
/// assert!(summary.samples >= 1 && summary.problem.is_none());
/// println!("{summary}");
/// ```
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    latest: Option<Sample>,
    collected: SummaryCollector,
    cpu_seconds: Option<f64>,
    wall: Duration,
    longest: Duration,
    problem: Option<String>,
}

impl Monitor {
    /// Starts to sample this machine, once at once and then every `interval`.
    pub fn start(interval: Duration) -> Self {
        Self::start_with(interval, || Sampler::new(MachineSource::open()), |_| {})
    }

    /// Starts to sample with a sampler that `open` creates, and gives each sample to `on_sample`, such as a recorder or
    /// alerts. Both run in the thread of the monitor. A panic in one of them ends sampling, and the summary says so.
    pub fn start_with(
        interval: Duration,
        open: impl FnOnce() -> Sampler + Send + 'static,
        on_sample: impl FnMut(&Sample) + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let work = move || {
            let run = AssertUnwindSafe(|| of_thread.run(interval.max(INTERVAL_MIN), open, on_sample));
            if let Err(panic) = catch_unwind(run) {
                of_thread.lock().problem = Some(panic_text(&*panic));
            }
        };
        let thread = Builder::new().name("monitor".into()).spawn(work);
        if let Err(error) = &thread {
            shared.lock().problem = Some(format!("cannot start a thread: {error}"));
        }
        Self { shared, thread: thread.ok() }
    }

    /// Returns the latest sample; `None` before the first.
    pub fn latest(&self) -> Option<Sample> {
        self.shared.lock().latest.clone()
    }

    /// Returns the summary of all samples so far.
    pub fn summary(&self) -> MonitorSummary {
        self.shared.lock().summary()
    }

    /// Stops sampling, and returns the summary of all samples. There is at least one, unless sampling has failed.
    pub fn stop(mut self) -> MonitorSummary {
        self.end();
        self.summary()
    }

    fn end(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic is caught in the thread, and is in the summary.
            let _ = thread.join();
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, interval: Duration, open: impl FnOnce() -> Sampler, mut on_sample: impl FnMut(&Sample)) {
        let mut sampler = open();
        let mut next = Instant::now();
        loop {
            let start = Instant::now();
            let sample = sampler.sample();
            on_sample(&sample);
            self.lock().add(sample, start.elapsed(), thread_cpu_seconds());
            // Samples that are late are left out, so that a slow driver is not asked more often.
            let now = Instant::now();
            next += interval;
            if next < now {
                next = now + interval;
            }
            let stopped = |state: &mut State| !state.stop;
            let waited = self.changed.wait_timeout_while(self.lock(), next - now, stopped);
            if waited.unwrap_or_else(PoisonError::into_inner).0.stop {
                return;
            }
        }
    }
}

impl State {
    fn add(&mut self, sample: Sample, wall: Duration, cpu_seconds: Option<f64>) {
        self.collected.add(&sample);
        self.latest = Some(sample);
        self.cpu_seconds = cpu_seconds;
        self.wall += wall;
        self.longest = self.longest.max(wall);
    }

    fn summary(&self) -> MonitorSummary {
        let mut summary = self.collected.summary();
        let [wall, longest] = [self.wall, self.longest].map(|time| time.as_secs_f64());
        summary.cost = MonitorCost::new(self.cpu_seconds, wall, longest, summary.seconds);
        summary.problem.clone_from(&self.problem);
        summary
    }
}

/// Reads the processor time of this thread; `None` if the system does not tell it.
fn thread_cpu_seconds() -> Option<f64> {
    let statistics = read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = statistics.split_ascii_whitespace().next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
