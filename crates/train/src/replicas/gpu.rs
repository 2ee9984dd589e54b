//! Replicas on the GPUs of one machine, which add gradients from GPU to GPU.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{Device, StreamId, Tensor};
use plimsoll_core::{Collective, CollectiveError};

use super::{Replica, ThreadReplica};
use crate::attempt::attempt;

/// Sum of a tensor over all GPUs. It does not return before all replicas have called it.
type Reduce = Arc<dyn Fn(Tensor<1>) -> Tensor<1> + Send + Sync>;
/// Work of a [`Worker`].
type Job = Box<dyn FnOnce() + Send>;

/// A replica on a GPU of this machine, with a thread of its own. Gradients go directly between the GPUs (NCCL on
/// CUDA), all other data through the threads.
///
/// A sum over GPUs that one replica does not start never ends, and cannot be interrupted. It therefore runs on a second
/// thread, and the replica stops waiting for it when another one fails or is silent for half an hour.
///
/// Only CUDA supports this in Burn 0.22. It has not been measured yet.
pub struct GpuReplica {
    threads: ThreadReplica,
    worker: Worker,
    reduce: Reduce,
}

impl GpuReplica {
    /// Makes one replica for each of `devices`, in their order.
    pub fn for_devices(devices: &[Device]) -> Vec<Self> {
        let devices: Vec<Device> = devices.iter().map(|device| device.clone().inner()).collect();
        let count = devices.len();
        let reduce = move |tensor| all_reduce(tensor, ReduceOperation::Sum, devices.clone()).resolve();
        Self::with_reduce(ThreadReplica::for_ranks(count), &(Arc::new(reduce) as Reduce))
    }

    /// Makes replicas that sum tensors with `reduce`.
    fn with_reduce(threads: Vec<ThreadReplica>, reduce: &Reduce) -> Vec<Self> {
        let replica = |threads| Self { threads, worker: Worker::start(), reduce: reduce.clone() };
        threads.into_iter().map(replica).collect()
    }
}

impl Collective for GpuReplica {
    fn rank(&self) -> usize {
        self.threads.rank()
    }

    fn ranks(&self) -> usize {
        self.threads.ranks()
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        self.threads.gather(own)
    }

    fn fail(&self, reason: &str) {
        self.threads.fail(reason);
    }
}

impl Replica for GpuReplica {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        let result = Arc::new(Mutex::new(None));
        // The same stream as on this thread: on another one Burn would copy the tensor.
        let (slot, table, reduce, stream) =
            (result.clone(), self.threads.table().clone(), self.reduce.clone(), StreamId::current());
        self.threads.enter();
        self.worker.run(Box::new(move || {
            let sum = attempt(|| stream.executes(|| reduce(tensor)));
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(sum);
            table.wake();
        }));
        let sum = self.threads.wait_for(|| result.lock().unwrap_or_else(PoisonError::into_inner).take())?;
        sum.map_err(|reason| {
            self.fail(&reason);
            CollectiveError::failed(self.rank(), &reason)
        })
    }

    fn may_block_device(&self) -> bool {
        true
    }
}

/// Thread for work that may never end. It ends when the worker is dropped, or stays behind with its last work.
struct Worker(Sender<Job>);

impl Worker {
    fn start() -> Self {
        let (jobs, queue) = channel::<Job>();
        std::thread::spawn(move || queue.into_iter().for_each(|job| job()));
        Self(jobs)
    }

    fn run(&self, job: Job) {
        self.0.send(job).expect("the worker runs as long as it can get work");
    }
}

/// A small model, shared with the tests of the crate.
#[cfg(test)]
#[path = "../../tests/storm/net.rs"]
mod net;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use plimsoll_core::{Batch, Key};
    use plimsoll_tape::collect;

    use super::*;
    use crate::{Governor, Schedule, StepError, Trainer, TrainerConfig};

    /// Sums like NCCL: blocks until all of `ranks` replicas have called it, whatever happens to them. Call number `fails`
    /// panics, counted over all replicas.
    fn blocking_reduce(ranks: usize, fails: usize) -> Reduce {
        let (barrier, calls, sums) = (Barrier::new(ranks), AtomicUsize::new(0), Mutex::new(Vec::<Tensor<1>>::new()));
        Arc::new(move |tensor| {
            if calls.fetch_add(1, Relaxed) == fails {
                panic!("out of memory: no room for the sum");
            }
            sums.lock().unwrap().push(tensor);
            barrier.wait();
            let sum = sums.lock().unwrap().iter().cloned().reduce(|sum, next| sum + next).unwrap();
            if barrier.wait().is_leader() {
                sums.lock().unwrap().clear();
            }
            barrier.wait();
            sum
        })
    }

    /// Takes two steps on two replicas, and returns their results.
    fn steps(fails: usize, wait_max: Duration, is_silent: bool) -> Vec<Result<(), StepError>> {
        let threads = ThreadReplica::for_ranks(2).into_iter().map(|thread| thread.with_wait_max(wait_max)).collect();
        let replicas = GpuReplica::with_reduce(threads, &blocking_reduce(2, fails));
        std::thread::scope(|scope| {
            let work = |replica: GpuReplica| {
                scope.spawn(move || {
                    let rank = replica.rank();
                    let device = Device::flex().autodiff();
                    let config = TrainerConfig {
                        async_errors: true,
                        ..TrainerConfig::new(Schedule::constant(1e-3), Key::new(1))
                    };
                    let mut trainer =
                        Trainer::new(net::Net::new(8, &device), config, Governor::new(8)).with_replica(replica);
                    let before = collect(&trainer.task);
                    for step in 0..2 {
                        if is_silent && rank == 1 {
                            // It never comes, and is not gone either.
                            std::mem::forget(trainer);
                            return Ok(());
                        }
                        let batch = net::batch(step * 8..step * 8 + 8, 6).shard(rank, 2);
                        if let Err(error) = trainer.step(&batch) {
                            assert!(step > 0 || collect(&trainer.task) == before, "the failed step changed a weight");
                            return Err(error);
                        }
                    }
                    Ok(())
                })
            };
            let threads: Vec<_> = replicas.into_iter().map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_failure_after_the_agreement_ends_the_step_on_every_replica_and_is_named() {
        let hour = Duration::from_secs(3600);
        assert!(steps(usize::MAX, hour, false).iter().all(Result::is_ok));
        // The model has six parameters, so two replicas make twelve calls a step. Any of them may fail.
        for fails in 0..24 {
            let errors: Vec<String> = steps(fails, hour, false)
                .into_iter()
                .map(|result| plimsoll_core::error_chain(&result.unwrap_err()))
                .collect();
            let named = errors.iter().filter(|error| error.contains("no room for the sum")).count();
            assert_eq!(named, 2, "call {fails}: {errors:?}");
        }
    }

    #[test]
    fn a_silent_replica_ends_the_wait_of_the_others_and_is_named() {
        let results = steps(usize::MAX, Duration::from_millis(20), true);
        let error = plimsoll_core::error_chain(results[0].as_ref().unwrap_err());
        assert!(error.contains("replica 1 did not answer"), "{error}");
    }
}
