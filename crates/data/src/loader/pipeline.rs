//! Runs jobs in parallel threads and returns the results in the order of the jobs.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// Error: the worker thread of a job ended before the job was done, so the job has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerLost;

/// Results of jobs, in the order of the jobs.
///
/// A feeder thread takes the jobs one by one and opens a channel for each result. It queues the receiving ends in the
/// order of the jobs, and this queue is the order of the results. A job needs a permit to start, and the permit returns
/// when its result is taken: this is the back-pressure. Permits and threads can be added at any time.
pub(super) struct Pipeline<R> {
    /// Queue of the channels on which the results of the jobs arrive, in the order of the jobs; `None` while the
    /// pipeline is being dropped.
    results: Option<Receiver<Receiver<R>>>,
    permits: Option<Sender<()>>,
    feeder: Option<JoinHandle<()>>,
    /// Starts one more worker thread and returns its handle; `None` when all workers have died.
    spawn_worker: Box<dyn Fn() -> Option<JoinHandle<()>> + Send>,
    workers: Vec<JoinHandle<()>>,
    ahead: usize,
    stop: Arc<AtomicBool>,
}

/// Work order for a worker thread: a job, and the sending end of the channel for the result of the job.
type Order<J, R> = (J, Sender<R>);

impl<R: Send + 'static> Pipeline<R> {
    /// Starts `workers` threads on `jobs`. At most `ahead` jobs run or have a result that waits to be taken.
    pub(super) fn start<J: Send + 'static>(
        jobs: impl Iterator<Item = J> + Send + 'static,
        work: impl Fn(&J) -> R + Send + Sync + 'static,
        workers: NonZeroUsize,
        ahead: NonZeroUsize,
    ) -> Self {
        // The permits bound both channels.
        let (queue, results) = unbounded();
        let (orders, taken) = unbounded();
        let (permits, permitted) = unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let (work, stopped, taken) = (Arc::new(work), stop.clone(), Arc::new(taken));
        // Only workers own the receiving end of the orders, so pending orders are lost when the last worker dies.
        let weak = Arc::downgrade(&taken);
        let spawn_worker = Box::new(move || {
            let (taken, work, stop) = (weak.upgrade()?, work.clone(), stopped.clone());
            Some(spawn(move || do_jobs(&taken, &*work, &stop)))
        });
        let feeder = Some(spawn(move || feed(jobs, &permitted, &queue, &orders)));
        let (results, permits) = (Some(results), Some(permits));
        let mut pipeline = Self { results, permits, feeder, spawn_worker, workers: Vec::new(), ahead: 0, stop };
        pipeline.grow(workers.get(), ahead.get());
        drop(taken);
        pipeline
    }

    /// Grows to at least `workers` threads and `ahead` results ahead.
    pub(super) fn grow(&mut self, workers: usize, ahead: usize) {
        let missing = workers.saturating_sub(self.workers.len());
        let spawned: Vec<_> = (0..missing).filter_map(|_| (self.spawn_worker)()).collect();
        self.workers.extend(spawned);
        while self.ahead < ahead {
            self.permit();
            self.ahead += 1;
        }
    }

    /// Returns the number of worker threads, and the number of jobs that may run or have a result that waits to be
    /// taken.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.workers.len(), self.ahead)
    }

    fn permit(&self) {
        // Fails when the feeder has ended and needs no permit.
        let _ = self.permits.as_ref().map(|permits| permits.send(()));
    }

    /// Waits for the result of the next job and returns it; `None` after the last job.
    pub(super) fn next(&mut self) -> Option<Result<R, WorkerLost>> {
        match self.results.as_ref()?.recv() {
            Ok(result) => {
                let result = result.recv().map_err(|_| WorkerLost);
                self.permit();
                Some(result)
            }
            // The feeder ended. If it panicked, jobs are missing, and this must not look like the end.
            Err(_) => self.feeder.take()?.join().err().map(|_| Err(WorkerLost)),
        }
    }
}

impl<R> Drop for Pipeline<R> {
    /// Ends the threads. Each thread finishes at most its current job.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // This wakes the feeder, and the end of the feeder wakes the workers.
        self.results = None;
        self.permits = None;
        for thread in self.feeder.take().into_iter().chain(self.workers.drain(..)) {
            // A panic was already returned as `WorkerLost`, or its result is not needed any more.
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
        let (result, receiver) = bounded(1);
        if queue.send(receiver).is_err() || orders.send((job, result)).is_err() {
            return;
        }
    }
}

fn do_jobs<J, R>(orders: &Receiver<Order<J, R>>, work: &impl Fn(&J) -> R, stop: &AtomicBool) {
    for (job, result) in orders {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // Fails when the pipeline is being dropped; the next iteration ends.
        let _ = result.send(work(&job));
    }
}

fn spawn(run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name("loader".into()).spawn(run).expect("the system starts a thread")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use super::*;

    fn count(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).unwrap()
    }

    /// Sleeps up to two milliseconds, for later jobs often less than for earlier jobs.
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
    fn at_most_ahead_jobs_are_in_work() {
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
    fn a_dead_worker_is_an_error_and_not_a_deadlock() {
        let work = |job: &u64| if *job == 3 { panic!("a bug, for this test") } else { *job };
        let mut pipeline = Pipeline::start(0..1_000, work, count(1), count(2));
        let results: Vec<_> = std::iter::from_fn(|| pipeline.next()).collect();
        assert_eq!(results[..4], [Ok(0), Ok(1), Ok(2), Err(WorkerLost)]);
        assert!(results[4..].iter().all(|result| *result == Err(WorkerLost)));
        let mut two = Pipeline::start(0..20, work, count(2), count(2));
        let results: Vec<_> = std::iter::from_fn(|| two.next()).collect();
        assert_eq!((results.len(), results.iter().filter(|r| r.is_err()).count()), (20, 1));
    }

    #[test]
    fn a_dead_feeder_is_an_error() {
        let jobs = (0u64..10).inspect(|&job| assert!(job < 2, "a bug, for this test"));
        let mut pipeline = Pipeline::start(jobs, |job| *job, count(2), count(1));
        let results: Vec<_> = std::iter::from_fn(|| pipeline.next()).collect();
        assert_eq!(results, [Ok(0), Ok(1), Err(WorkerLost)]);
    }
}
