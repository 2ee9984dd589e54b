//! Replicas that are threads of one process and exchange data through host memory.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burn::tensor::Tensor;
use plimsoll_core::{Collective, CollectiveError, TimeOwner, timing};

use super::Replica;
use super::host::all_reduce_by_gathering;

/// Longest time that a replica waits for another one. A step, a validation or a checkpoint of another replica takes
/// minutes at most; a replica that is silent for longer will not answer.
const WAIT_MAX: Duration = Duration::from_secs(30 * 60);

/// A replica that is a thread of this process.
///
/// Replicas exchange tensors through host memory and add them in rank order. This works on every backend, but it is
/// slow on GPUs. A replica that is dropped, [fails](Collective::fail) or is silent for half an hour ends the wait of the
/// others with an error that names it.
pub struct ThreadReplica {
    rank: usize,
    table: Arc<Table>,
    wait_max: Duration,
}

/// Place in host memory where the threads of the replicas exchange data: each thread puts in its contribution and waits
/// for the contributions of all others.
pub(super) struct Table {
    round: Mutex<Round>,
    changed: Condvar,
}

/// State of the current exchange of data between the replicas, in which every replica contributes once.
struct Round {
    number: u64,
    brought: Vec<Option<Arc<[u8]>>>,
    /// Contributions to the previous exchange, for threads that have not read them yet.
    last: Vec<Arc<[u8]>>,
    /// Number of operations outside this table that each replica has started.
    entered: Vec<u64>,
    /// First failure of a replica, after which no exchange can be completed.
    failure: Option<CollectiveError>,
}

impl ThreadReplica {
    /// Makes one replica for each of `count` ranks, each for a separate thread.
    pub fn for_ranks(count: usize) -> Vec<Self> {
        let (brought, entered) = (vec![None; count], vec![0; count]);
        let round = Round { number: 0, brought, last: Vec::new(), entered, failure: None };
        let table = Arc::new(Table { round: Mutex::new(round), changed: Condvar::new() });
        (0..count).map(|rank| Self { rank, table: table.clone(), wait_max: WAIT_MAX }).collect()
    }

    /// Sets the longest time that this replica waits for another one. Default: 30 minutes.
    #[must_use]
    pub fn with_wait_max(mut self, wait_max: Duration) -> Self {
        self.wait_max = wait_max;
        self
    }

    /// Returns the place where the replicas meet.
    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Records that this replica starts an operation with all others outside the table.
    pub(super) fn enter(&self) {
        self.table.locked().entered[self.rank] += 1;
    }

    /// Waits until `ready` returns a value, and returns it. The worker that makes it ready calls [`Table::wake`].
    ///
    /// # Errors
    /// If a replica fails before, or the wait lasts too long. The error then names a replica that has not started the
    /// operation.
    pub(super) fn wait_for<R>(&self, mut ready: impl FnMut() -> Option<R>) -> Result<R, CollectiveError> {
        let mut found = None;
        let round = self.table.locked();
        let mut is_over = |round: &mut Round| {
            found = ready();
            found.is_some() || round.failure.is_some()
        };
        let mut round = self.table.wait_until(round, self.wait_max, &mut is_over);
        if let Some(found) = found {
            return Ok(found);
        }
        let (own, entered) = (round.entered[self.rank], &round.entered);
        let missing = entered.iter().position(|&count| count < own).unwrap_or(self.rank);
        Err(round.failure.get_or_insert_with(|| CollectiveError::timed_out(missing, self.wait_max)).clone())
    }
}

impl Table {
    fn locked(&self) -> MutexGuard<'_, Round> {
        // A panicked replica marks itself as gone in its `drop`, so a poisoned lock needs no other handling.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_over` returns true, but not longer than `wait_max`.
    fn wait_until<'a>(
        &self,
        round: MutexGuard<'a, Round>,
        wait_max: Duration,
        is_over: &mut dyn FnMut(&mut Round) -> bool,
    ) -> MutexGuard<'a, Round> {
        let waited = self.changed.wait_timeout_while(round, wait_max, |round| !is_over(round));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Lets all waiting replicas look again whether their wait is over.
    pub(super) fn wake(&self) {
        let _round = self.locked();
        self.changed.notify_all();
    }

    fn record_failure(&self, failure: CollectiveError) {
        self.locked().failure.get_or_insert(failure);
        self.changed.notify_all();
    }
}

impl Drop for ThreadReplica {
    fn drop(&mut self) {
        self.table.record_failure(CollectiveError::gone(self.rank));
    }
}

impl Collective for ThreadReplica {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.table.locked().brought.len()
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        let mut round = self.table.locked();
        if let Some(failure) = &round.failure {
            return Err(failure.clone());
        }
        let number = round.number;
        round.brought[self.rank] = Some(own.into());
        if round.brought.iter().all(Option::is_some) {
            round.last = round.brought.iter_mut().filter_map(Option::take).collect();
            round.number += 1;
            self.table.changed.notify_all();
        }
        let _waiting = timing::enter(TimeOwner::Replicas);
        let mut is_over = |round: &mut Round| round.number != number || round.failure.is_some();
        let mut round = self.table.wait_until(round, self.wait_max, &mut is_over);
        if round.number != number {
            return Ok(round.last.clone());
        }
        let missing = round.brought.iter().position(Option::is_none).unwrap_or(self.rank);
        Err(round.failure.get_or_insert_with(|| CollectiveError::timed_out(missing, self.wait_max)).clone())
    }

    fn fail(&self, reason: &str) {
        self.table.record_failure(CollectiveError::failed(self.rank, reason));
    }
}

impl Replica for ThreadReplica {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        all_reduce_by_gathering(self, tensor)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn all_reduce_gives_the_same_bits_on_every_rank() {
        let sums: Vec<Vec<f32>> = std::thread::scope(|scope| {
            let work = |replica: ThreadReplica| {
                scope.spawn(move || {
                    let rank = replica.rank() as f32;
                    let mut sum = Tensor::<1>::from_floats([0.1 + rank, 1e-7 * rank], &Device::flex());
                    for _ in 0..50 {
                        sum = replica.all_reduce(sum).unwrap() * 0.3;
                    }
                    assert_eq!(replica.agree(replica.rank() != 2), Ok(false));
                    assert_eq!(&replica.broadcast(1, vec![replica.rank() as u8]).unwrap()[..], [1]);
                    let mut counts = [replica.rank() as f64];
                    replica.sum(&mut counts).unwrap();
                    assert_eq!(counts, [3.0]);
                    sum.into_data().try_into_vec::<f32>().unwrap()
                })
            };
            let threads: Vec<_> = ThreadReplica::for_ranks(3).into_iter().map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(sums[0] == sums[1] && sums[1] == sums[2], "{sums:?}");
    }

    /// Returns the error that replica 0 of three gets when `end` has ended replica 2, whatever replica 1 does.
    fn error_after(end: impl FnOnce(ThreadReplica)) -> String {
        let mut replicas = ThreadReplica::for_ranks(3);
        let (last, middle, own) = (replicas.pop().unwrap(), replicas.pop().unwrap(), replicas.pop().unwrap());
        let middle = std::thread::spawn(move || middle.gather(vec![1]).unwrap_err());
        // A replica that is silent is kept, so that it is not gone.
        let waiting = std::thread::spawn(move || (own.gather(vec![1]).unwrap_err(), own));
        end(last);
        let (error, _own) = waiting.join().unwrap();
        assert_eq!(middle.join().unwrap(), error, "all replicas get the same error");
        error.to_string()
    }

    #[test]
    fn a_lost_replica_ends_the_wait_of_all_others_with_its_name() {
        assert_eq!(error_after(drop), "replica 2 is gone");
        let failed = |replica: ThreadReplica| replica.fail("out of memory");
        assert_eq!(error_after(failed), "replica 2 failed: out of memory");
    }

    #[test]
    fn a_silent_replica_ends_the_wait_with_its_name() {
        let mut replicas = ThreadReplica::for_ranks(2);
        let (silent, own) = (replicas.pop().unwrap(), replicas.pop().unwrap());
        let own = own.with_wait_max(Duration::from_millis(1));
        let expected = Err(CollectiveError::timed_out(1, Duration::from_millis(1)));
        assert_eq!(own.gather(vec![1]), expected);
        assert_eq!(silent.gather(vec![1]), expected, "it comes back when the others have given up");
    }
}
