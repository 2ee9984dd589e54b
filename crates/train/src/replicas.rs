//! Replicas: several copies of a model that train together, on threads or on GPUs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use burn::tensor::distributed::{ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor, TensorData};
use plimsoll_core::{Collective, CollectiveError, SingleReplica};

/// A replica of the model in training: a [`Collective`] that also sums tensors over all replicas.
pub trait Replica: Collective {
    /// Sums `tensor` over all replicas, with the same bits on each replica.
    ///
    /// # Errors
    /// If another replica is gone.
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError>;
}

impl<R: Replica + ?Sized> Replica for Box<R> {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        (**self).all_reduce(tensor)
    }
}

impl Replica for SingleReplica {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        Ok(tensor)
    }
}

/// A replica that is a thread of this process.
///
/// Replicas exchange tensors through host memory and add them in rank order. This works on every backend, but it is
/// slow on GPUs.
pub struct ThreadReplica {
    rank: usize,
    table: Arc<Table>,
}

/// Place in host memory where the threads of the replicas exchange data: each thread puts in its contribution and waits
/// for the contributions of all others.
struct Table {
    round: Mutex<Round>,
    changed: Condvar,
}

/// State of the current exchange of data between the replicas, in which every replica contributes once.
struct Round {
    number: u64,
    brought: Vec<Option<Arc<[u8]>>>,
    /// Contributions to the previous exchange, for threads that have not read them yet.
    last: Vec<Arc<[u8]>>,
    gone: Option<usize>,
}

impl ThreadReplica {
    /// Makes one replica for each of `count` ranks, each for a separate thread.
    pub fn for_ranks(count: usize) -> Vec<Self> {
        let round = Round { number: 0, brought: vec![None; count], last: Vec::new(), gone: None };
        let table = Arc::new(Table { round: Mutex::new(round), changed: Condvar::new() });
        (0..count).map(|rank| Self { rank, table: table.clone() }).collect()
    }
}

impl Table {
    fn locked(&self) -> MutexGuard<'_, Round> {
        // A panicked replica marks itself as gone in its `drop`, so a poisoned lock needs no other handling.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ThreadReplica {
    fn drop(&mut self) {
        self.table.locked().gone.get_or_insert(self.rank);
        self.table.changed.notify_all();
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
        let number = round.number;
        round.brought[self.rank] = Some(own.into());
        if round.brought.iter().all(Option::is_some) {
            round.last = round.brought.iter_mut().filter_map(Option::take).collect();
            round.number += 1;
            self.table.changed.notify_all();
        }
        while round.number == number {
            if let Some(rank) = round.gone {
                return Err(CollectiveError { rank });
            }
            round = self.table.changed.wait(round).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(round.last.clone())
    }
}

impl Replica for ThreadReplica {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        let (device, data) = (tensor.device(), tensor.into_data());
        let (dtype, shape) = (data.dtype(), data.shape().clone());
        let all = self.gather(data.as_bytes().to_vec())?;
        let read = |bytes: &Arc<[u8]>| {
            let data = TensorData::from_bytes_vec(bytes.to_vec(), shape.clone(), dtype);
            Tensor::<1>::from_data(data, (&device, dtype))
        };
        let mut all = all.iter().map(read);
        let first = all.next().expect("there is this replica");
        Ok(all.fold(first, |sum, next| sum + next))
    }
}

/// A replica on a GPU of this machine, with a thread of its own. Gradients go directly between the GPUs (NCCL on
/// CUDA), all other data through the threads.
///
/// Only CUDA supports this in Burn 0.22. It has not been measured yet.
pub struct GpuReplica {
    threads: ThreadReplica,
    devices: Vec<Device>,
}

impl GpuReplica {
    /// Makes one replica for each of `devices`, in their order.
    pub fn for_devices(devices: &[Device]) -> Vec<Self> {
        let devices: Vec<Device> = devices.iter().map(|device| device.clone().inner()).collect();
        ThreadReplica::for_ranks(devices.len())
            .into_iter()
            .map(|threads| Self { threads, devices: devices.clone() })
            .collect()
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
}

impl Replica for GpuReplica {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        Ok(all_reduce(tensor, ReduceOperation::Sum, self.devices.clone()).resolve())
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn a_lost_replica_ends_the_wait_with_an_error() {
        let mut replicas = ThreadReplica::for_ranks(2);
        let (other, own) = (replicas.pop().unwrap(), replicas.pop().unwrap());
        let waiting = std::thread::spawn(move || own.gather(vec![1]));
        drop(other);
        assert_eq!(waiting.join().unwrap(), Err(CollectiveError { rank: 1 }));
    }
}
