//! Chooses the number of threads and of prefetched batches: as few as possible without making the caller wait.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Number of latest batches whose waiting times decide whether threads or prefetched batches are added.
const LOOK_BACK: usize = 8;
/// Largest share of time that the caller may wait before the loader grows.
const MAX_WAITING_SHARE: f64 = 0.01;
/// Largest number of prefetched batches that is chosen when the number is not configured.
const MAX_AHEAD: usize = 16;

/// Measures how long the caller waits, and decides when to add threads or prefetched batches.
///
/// Configured numbers are never changed. Numbers that are not configured only grow, because an idle thread costs almost
/// nothing.
pub(super) struct Tuning {
    workers: Option<NonZeroUsize>,
    ahead: Option<NonZeroUsize>,
    cores: usize,
    last: Option<Instant>,
    /// For each of the latest batches: how long the caller waited for it, and the time since the batch before it.
    waits: VecDeque<(Duration, Duration)>,
}

impl Tuning {
    /// Creates the tuning for `workers` threads and `ahead` prefetched batches; `None` stands for a number that is not
    /// configured, so it may grow.
    pub(super) fn new(workers: Option<NonZeroUsize>, ahead: Option<NonZeroUsize>) -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Self { workers, ahead, cores, last: None, waits: VecDeque::new() }
    }

    /// Returns the initial number of threads and of prefetched batches.
    pub(super) fn start(&self) -> (NonZeroUsize, NonZeroUsize) {
        let workers = self.workers.unwrap_or(NonZeroUsize::MIN);
        (workers, self.ahead.unwrap_or(workers.saturating_mul(const { NonZeroUsize::new(2).expect("2 is not 0") })))
    }

    /// Records that a batch came after `waited`. Returns new numbers of threads and of prefetched batches, instead of
    /// `workers` and `ahead`, if the caller waits too long; `None` to keep both.
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
        if waited <= passed * MAX_WAITING_SHARE {
            return None;
        }
        let more = (self.workers.map_or((workers + 1).min(self.cores), |_| workers), ahead);
        let wanted = if more.0 > workers { 2 * more.0 } else { 2 * ahead };
        let more = (more.0, self.ahead.map_or(wanted.min(MAX_AHEAD).max(ahead), |_| ahead));
        // The waits so far belong to the smaller numbers.
        self.waits.clear();
        (more != (workers, ahead)).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of workers and prefetched batches after `batches`, with a wait of `wait` ms in every `pass`
    /// ms.
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
    fn only_waiting_grows_the_loader() {
        let free = || Tuning { cores: 3, ..Tuning::new(None, None) };
        assert_eq!(grown(free(), 0, 1000, 100), (1, 2));
        assert_eq!(grown(free(), 5, 1000, 100), (1, 2));
        assert_eq!(grown(free(), 50, 1000, 15), (2, 4));
        assert_eq!(grown(free(), 50, 1000, 100), (3, 16));
        let set = Tuning { cores: 3, ..Tuning::new(NonZeroUsize::new(1), NonZeroUsize::new(20)) };
        assert_eq!(grown(set, 500, 1000, 100), (1, 20));
    }
}
