//! Threads that do numbered jobs side by side and give the results back in the order of the jobs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// A job whose worker died before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// Results, in order, of jobs that are being done.
///
/// A feeder takes jobs one by one and gives each its own channel for the result. The other ends of these channels
/// stand in a queue in the order of the jobs: the queue is the order. A job needs a permit to be begun, which comes back
/// when its result is taken: the permits are the back-pressure, and more of them or of the threads can be had any time.
pub(super) struct Pipeline<R> {
    /// `None` once the pipeline is being taken down.
    results: Option<Receiver<Receiver<R>>>,
    permits: Option<Sender<()>>,
    feeder: Option<JoinHandle<()>>,
    /// Starts a thread more, unless all have died.
    hire: Box<dyn Fn() -> Option<JoinHandle<()>> + Send>,
    workers: Vec<JoinHandle<()>>,
    ahead: usize,
    stop: Arc<AtomicBool>,
}

/// A job and where its result goes.
type Order<J, R> = (J, Sender<R>);

impl<R: Send + 'static> Pipeline<R> {
    /// Starts `workers` threads on `jobs`; at most `ahead` results wait to be taken, or are being made.
    pub(super) fn start<J: Send + 'static>(
        jobs: impl Iterator<Item = J> + Send + 'static,
        work: impl Fn(&J) -> R + Send + Sync + 'static,
        workers: NonZeroUsize,
        ahead: NonZeroUsize,
    ) -> Self {
        // Neither ever holds more than there are permits.
        let (queue, results) = unbounded();
        let (orders, taken) = unbounded();
        let (permits, permitted) = unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let (work, stopped, taken) = (Arc::new(work), stop.clone(), Arc::new(taken));
        // Only workers hold the end where orders are taken: when the last of them has died, what was ordered is gone.
        let remembered = Arc::downgrade(&taken);
        let hire = Box::new(move || {
            let (taken, work, stop) = (remembered.upgrade()?, work.clone(), stopped.clone());
            Some(spawn(move || do_jobs(&taken, &*work, &stop)))
        });
        let feeder = Some(spawn(move || feed(jobs, &permitted, &queue, &orders)));
        let (results, permits) = (Some(results), Some(permits));
        let mut pipeline = Self { results, permits, feeder, hire, workers: Vec::new(), ahead: 0, stop };
        pipeline.grow(workers.get(), ahead.get());
        drop(taken);
        pipeline
    }

    /// Sees to it that there are at least so many threads, and so many results ahead.
    pub(super) fn grow(&mut self, workers: usize, ahead: usize) {
        let missing = workers.saturating_sub(self.workers.len());
        let hired: Vec<_> = (0..missing).filter_map(|_| (self.hire)()).collect();
        self.workers.extend(hired);
        while self.ahead < ahead {
            self.permit();
            self.ahead += 1;
        }
    }

    /// Threads, and results that may be ahead.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.workers.len(), self.ahead)
    }

    fn permit(&self) {
        // Fails when the feeder has ended, which then needs none.
        let _ = self.permits.as_ref().map(|permits| permits.send(()));
    }

    /// The result of the next job, or nothing after the last one.
    pub(super) fn next(&mut self) -> Option<Result<R, Gone>> {
        match self.results.as_ref()?.recv() {
            Ok(result) => {
                let result = result.recv().map_err(|_| Gone);
                self.permit();
                Some(result)
            }
            // The feeder ended. If it panicked there would have been more, and silence would pass for the end.
            Err(_) => self.feeder.take()?.join().err().map(|_| Err(Gone)),
        }
    }
}

impl<R> Drop for Pipeline<R> {
    /// Ends the threads: each at most finishes the job it is at.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the feeder, whose end wakes the workers.
        self.results = None;
        self.permits = None;
        for thread in self.feeder.take().into_iter().chain(self.workers.drain(..)) {
            // A panic has been reported as `Gone` already, or concerns a result that nobody wants.
            let _ = thread.join();
        }
    }
}

fn feed<J, R>(
    jobs: impl Iterator<Item = J>,
    permits: &Receiver<()>,
    queue: &Sender<Receiver<R>>,
    orders: &Sender<Order<J, R>>,
) {
    for job in jobs {
        if permits.recv().is_err() {
            return;
        }
        let (result, place) = bounded(1);
        if queue.send(place).is_err() || orders.send((job, result)).is_err() {
            return;
        }
    }
}

fn do_jobs<J, R>(orders: &Receiver<Order<J, R>>, work: &impl Fn(&J) -> R, stop: &AtomicBool) {
    for (job, result) in orders {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // Fails when the pipeline was dropped meanwhile; the next turn sees it.
        let _ = result.send(work(&job));
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name("loader".into()).spawn(run).expect("the system has a thread for the loader")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use super::*;

    fn count(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).unwrap()
    }

    /// Sleeps up to two milliseconds, later jobs often less than earlier ones.
    fn uneven(job: &u64) -> u64 {
        std::thread::sleep(Duration::from_micros(2_000 - job * 733 % 2_000));
        *job
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        for (workers, ahead) in [(1, 1), (4, 1), (3, 8), (8, 3)] {
            let mut pipeline = Pipeline::start(0..50, uneven, count(workers), count(ahead));
            let results: Vec<u64> = std::iter::from_fn(|| pipeline.next()).map(Result::unwrap).collect();
            assert_eq!(results, (0..50).collect::<Vec<_>>());
            assert_eq!(pipeline.next(), None);
        }
    }

    #[test]
    fn no_more_is_done_ahead_than_asked() {
        let done = Arc::new(AtomicUsize::new(0));
        let counter = done.clone();
        let work = move |_: &usize| counter.fetch_add(1, Ordering::SeqCst);
        let mut pipeline = Pipeline::start(0.., work, count(4), count(3));
        for taken in 1..20 {
            pipeline.next().unwrap().unwrap();
            std::thread::sleep(Duration::from_millis(2));
            assert!(done.load(Ordering::SeqCst) <= taken + 3);
        }
    }

    #[test]
    fn dropping_ends_the_threads_at_once() {
        for taken in [0, 1, 5] {
            let start = Instant::now();
            let mut pipeline = Pipeline::start(0.., uneven, count(4), count(2));
            (0..taken).for_each(|_| assert!(pipeline.next().is_some()));
            std::thread::sleep(Duration::from_millis(10));
            drop(pipeline);
            assert!(start.elapsed() < Duration::from_secs(2));
        }
    }

    #[test]
    fn a_dead_worker_is_told_and_never_waited_for() {
        let work = |job: &u64| if *job == 3 { panic!("a bug, for this test") } else { *job };
        let mut pipeline = Pipeline::start(0..1_000, work, count(1), count(2));
        let results: Vec<_> = std::iter::from_fn(|| pipeline.next()).collect();
        assert_eq!(results[..4], [Ok(0), Ok(1), Ok(2), Err(Gone)]);
        assert!(results[4..].iter().all(|result| *result == Err(Gone)));
        let mut two = Pipeline::start(0..20, work, count(2), count(2));
        let results: Vec<_> = std::iter::from_fn(|| two.next()).collect();
        assert_eq!((results.len(), results.iter().filter(|r| r.is_err()).count()), (20, 1));
    }

    #[test]
    fn a_dead_feeder_is_not_the_end() {
        let jobs = (0u64..10).inspect(|&job| assert!(job < 2, "a bug, for this test"));
        let mut pipeline = Pipeline::start(jobs, |job| *job, count(2), count(1));
        let results: Vec<_> = std::iter::from_fn(|| pipeline.next()).collect();
        assert_eq!(results, [Ok(0), Ok(1), Err(Gone)]);
    }
}
