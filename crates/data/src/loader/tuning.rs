//! How many threads load, and how far ahead: as few as keep the caller from waiting.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Batches that are looked back at.
const LOOK_BACK: usize = 8;
/// The share of time that a caller may wait without anything being done about it.
const BEARABLE: f64 = 0.01;
/// Batches ahead at most, unless asked for.
const AHEAD_MOST: usize = 16;

/// Watches how long the caller waits.
///
/// Only numbers that nobody set are changed, and they only grow: an idle thread costs next to nothing.
pub(super) struct Tuning {
    workers: Option<NonZeroUsize>,
    ahead: Option<NonZeroUsize>,
    cores: usize,
    last: Option<Instant>,
    /// For each of the last batches, how long was waited for it, and how long after the one before it came.
    waits: VecDeque<(Duration, Duration)>,
}

impl Tuning {
    /// Leaves alone what was set.
    pub(super) fn new(workers: Option<NonZeroUsize>, ahead: Option<NonZeroUsize>) -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Self { workers, ahead, cores, last: None, waits: VecDeque::new() }
    }

    /// Threads to start with, and batches ahead.
    pub(super) fn start(&self) -> (NonZeroUsize, NonZeroUsize) {
        let workers = self.workers.unwrap_or(NonZeroUsize::MIN);
        (workers, self.ahead.unwrap_or(workers.saturating_mul(const { NonZeroUsize::new(2).expect("2 is not 0") })))
    }

    /// A batch came after `waited`, while there were `workers` and `ahead`: what there should be from now on, if it is more.
    pub(super) fn after(
        &mut self,
        waited: Duration,
        now: Instant,
        workers: usize,
        ahead: usize,
    ) -> Option<(usize, usize)> {
        let last = self.last.replace(now)?;
        self.waits.push_back((waited, now - last));
        if self.waits.len() <= LOOK_BACK {
            return None;
        }
        self.waits.pop_front();
        let (waited, passed) = self.waits.iter().fold((0.0, 0.0), |(waited, passed), (wait, pass)| {
            (waited + wait.as_secs_f64(), passed + pass.as_secs_f64())
        });
        if waited <= passed * BEARABLE {
            return None;
        }
        let more = (self.workers.map_or((workers + 1).min(self.cores), |_| workers), ahead);
        let wanted = if more.0 > workers { 2 * more.0 } else { 2 * ahead };
        let more = (more.0, self.ahead.map_or(wanted.min(AHEAD_MOST).max(ahead), |_| ahead));
        // What was seen is about how it was before.
        self.waits.clear();
        (more != (workers, ahead)).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of `workers` and `ahead` over so many batches, each of which was waited for `wait` of `pass`.
    fn grown(mut tuning: Tuning, wait: u64, pass: u64, batches: u64) -> (usize, usize) {
        let (start, (workers, ahead)) = (Instant::now(), tuning.start());
        let mut size = (workers.get(), ahead.get());
        for batch in 0..batches {
            let now = start + Duration::from_millis(pass * batch);
            size = tuning.after(Duration::from_millis(wait), now, size.0, size.1).unwrap_or(size);
        }
        size
    }

    #[test]
    fn whoever_waits_gets_more_and_nobody_else() {
        let free = || Tuning { cores: 3, ..Tuning::new(None, None) };
        assert_eq!(grown(free(), 0, 1000, 100), (1, 2));
        assert_eq!(grown(free(), 5, 1000, 100), (1, 2));
        assert_eq!(grown(free(), 50, 1000, 15), (2, 4));
        assert_eq!(grown(free(), 50, 1000, 100), (3, 16));
        let set = Tuning { cores: 3, ..Tuning::new(NonZeroUsize::new(1), NonZeroUsize::new(20)) };
        assert_eq!(grown(set, 500, 1000, 100), (1, 20));
    }
}
