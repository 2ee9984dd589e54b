//! Streams and events, with the time that is made up for them.

use std::time::{Duration, Instant};

/// Number of a capture.
pub(crate) type CaptureId = u64;

/// Queue of work on a GPU. All work is done at once, so only time and captures are left of it.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// Number of the GPU.
    pub(crate) gpu: usize,
    /// Time and readiness of the work so far.
    pub(crate) progress: Progress,
    /// Capture that records the work.
    pub(crate) capture: Option<CaptureId>,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

/// How far the work of a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// Made-up time of the GPU in microseconds.
    pub(crate) clock: f64,
    /// Time of the host at which a program that waits may go on.
    pub(crate) ready: Option<Instant>,
}

/// Made-up time of a piece of work, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Time of the GPU.
    pub(crate) clock: f64,
    /// Time that a program that waits for it really waits.
    pub(crate) wait: f64,
}

/// Mark in a stream.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Number of the GPU.
    pub(crate) gpu: usize,
    /// Whether it has a time.
    pub(crate) has_time: bool,
    /// Where it was recorded last.
    pub(crate) record: Option<Record>,
}

/// Where an event was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) progress: Progress,
    pub(crate) capture: Option<CaptureId>,
}

impl Stream {
    /// Makes a stream without work.
    pub(crate) fn new(gpu: usize, flags: u32, priority: i32) -> Self {
        Self { gpu, progress: Progress::default(), capture: None, flags, priority }
    }
}

impl Progress {
    /// Adds work.
    pub(crate) fn add(&mut self, work: Work) {
        self.clock += work.clock;
        if work.wait > 0.0 {
            let now = Instant::now();
            let begin = self.ready.map_or(now, |ready| ready.max(now));
            self.ready = Some(begin + Duration::from_secs_f64(work.wait * 1e-6));
        }
    }

    /// Moves on to where both have come.
    pub(crate) fn join(&mut self, other: Self) {
        self.clock = self.clock.max(other.clock);
        self.ready = self.ready.max(other.ready);
    }
}
