//! Replicas that exchange data through host memory, over any collective: the processes of a cluster.

use std::sync::Arc;
use std::vec;

use burn::tensor::{DType, Tensor, TensorData};
use plimsoll_core::{Collective, CollectiveError, TimeOwner, timing};
use plimsoll_tape::transfer::uploaded;

use super::Replica;
use crate::attempt::attempt;

/// A replica over any [`Collective`], whose tensors travel through host memory.
///
/// All gradients of a step are one message. They are added in the order of the ranks, so the sums have the bits that
/// [`ThreadReplica`](crate::ThreadReplica) gives, unless the network's library may add them.
#[derive(Clone, Debug)]
pub struct HostReplica<C> {
    collective: C,
    in_any_order: bool,
}

impl<C: Collective> HostReplica<C> {
    /// Makes a replica that exchanges its data over `collective`.
    pub fn new(collective: C) -> Self {
        Self { collective, in_any_order: false }
    }

    /// Lets the network's library add the gradients, in an order of its own: see
    /// [`Collective::sum_f32_in_any_order`].
    #[must_use]
    pub fn in_any_order(self, in_any_order: bool) -> Self {
        Self { in_any_order, ..self }
    }
}

impl<C: Collective> Collective for HostReplica<C> {
    fn rank(&self) -> usize {
        self.collective.rank()
    }

    fn ranks(&self) -> usize {
        self.collective.ranks()
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        timing::measure(TimeOwner::Replicas, || self.collective.gather(own))
    }

    fn fail(&self, reason: &str) {
        self.collective.fail(reason);
    }

    fn sum(&self, values: &mut [f64]) -> Result<(), CollectiveError> {
        timing::measure(TimeOwner::Replicas, || self.collective.sum(values))
    }

    fn sum_f32(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        timing::measure(TimeOwner::Replicas, || self.collective.sum_f32(values))
    }

    fn sum_f32_in_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        timing::measure(TimeOwner::Replicas, || self.collective.sum_f32_in_any_order(values))
    }

    fn sum_f32_while_read(
        &self,
        values: &mut [f32],
        read: &mut dyn FnMut(&mut [f32]) -> Result<(), String>,
    ) -> Result<(), CollectiveError> {
        timing::measure(TimeOwner::Replicas, || self.collective.sum_f32_while_read(values, read))
    }
}

impl<C: Collective> Replica for HostReplica<C> {
    fn all_reduce(&self, tensor: Tensor<1>) -> Result<Tensor<1>, CollectiveError> {
        let mut sums = self.all_reduce_each(vec![tensor])?;
        Ok(sums.pop().expect("there is a sum for each tensor"))
    }

    fn all_reduce_each(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, CollectiveError> {
        if tensors.iter().any(|tensor| tensor.dtype() != DType::F32) {
            return tensors.into_iter().map(|tensor| all_reduce_by_gathering(self, tensor)).collect();
        }
        let devices: Vec<_> = tensors.iter().map(|tensor| (tensor.device(), tensor.dims()[0])).collect();
        let mut values = vec![0.0; devices.iter().map(|(_, length)| length).sum()];
        // The first one is there when the device has computed all, so no other replica waits inside of a sum for that.
        let mut unread = Unread::new(tensors).map_err(|reason| failed(self, &reason))?;
        if self.in_any_order {
            self.sum_f32_while_read(&mut values, &mut |out| unread.read(out))?;
        } else {
            unread.read(&mut values).map_err(|reason| failed(self, &reason))?;
            self.sum_f32(&mut values)?;
        }
        let mut rest = &values[..];
        let send = || {
            let send = |(device, length)| {
                let (own, others) = rest.split_at(length);
                rest = others;
                Tensor::from_data(uploaded(TensorData::new(own.to_vec(), [length])), (&device, DType::F32))
            };
            devices.into_iter().map(send).collect()
        };
        attempt(send).map_err(|reason| failed(self, &reason))
    }
}

/// The values of tensors, which are read one after the other.
struct Unread {
    tensors: vec::IntoIter<Tensor<1>>,
    /// Values of the tensor before them, and how many of them were copied.
    data: TensorData,
    at: usize,
}

impl Unread {
    fn new(tensors: Vec<Tensor<1>>) -> Result<Self, String> {
        let mut unread = Self { tensors: tensors.into_iter(), data: TensorData::new(Vec::<f32>::new(), [0]), at: 0 };
        unread.next_tensor()?;
        Ok(unread)
    }

    /// Fetches the values of the next tensor. Returns whether there is one.
    fn next_tensor(&mut self) -> Result<bool, String> {
        let Some(tensor) = self.tensors.next() else { return Ok(false) };
        let data = attempt(|| tensor.try_into_data().map_err(|error| error.to_string()));
        (self.data, self.at) = (data.and_then(|data| data)?, 0);
        Ok(true)
    }

    /// Fills `out` with the next values.
    fn read(&mut self, mut out: &mut [f32]) -> Result<(), String> {
        while !out.is_empty() {
            let rest = &self.data.as_slice::<f32>().map_err(|error| error.to_string())?[self.at..];
            let len = rest.len().min(out.len());
            out[..len].copy_from_slice(&rest[..len]);
            (self.at, out) = (self.at + len, &mut out[len..]);
            if !out.is_empty() && !self.next_tensor()? {
                return Err("the gradients are shorter than they were".into());
            }
        }
        Ok(())
    }
}

/// Reports to the other replicas that this one failed, and returns the error.
fn failed(replica: &dyn Collective, reason: &str) -> CollectiveError {
    replica.fail(reason);
    CollectiveError::failed(replica.rank(), reason)
}

/// Sums `tensor` of any type over all replicas: each gets the tensors of all, and adds them in the order of the ranks.
pub(super) fn all_reduce_by_gathering(
    replica: &dyn Collective,
    tensor: Tensor<1>,
) -> Result<Tensor<1>, CollectiveError> {
    let device = tensor.device();
    let read = attempt(|| {
        let data = tensor.try_into_data().map_err(|error| error.to_string())?;
        Ok((data.dtype(), data.shape().clone(), data.as_bytes().to_vec()))
    });
    let (dtype, shape, own) = read.and_then(|read| read).map_err(|reason: String| failed(replica, &reason))?;
    let all = replica.gather(own)?;
    let sum = || {
        let send = |bytes: &Arc<[u8]>| {
            let data = TensorData::from_bytes_vec(bytes.to_vec(), shape.clone(), dtype);
            Tensor::<1>::from_data(uploaded(data), (&device, dtype))
        };
        let mut all = all.iter().map(send);
        let first = all.next().expect("there is this replica");
        all.fold(first, |sum, next| sum + next)
    };
    attempt(sum).map_err(|reason| failed(replica, &reason))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::ThreadReplica;

    /// Sums tensors of several lengths over three threads, and returns what the first gets.
    fn sums<R: Replica + 'static>(wrap: fn(ThreadReplica) -> R) -> Vec<Vec<f32>> {
        let work = |replica: ThreadReplica| {
            std::thread::spawn(move || {
                let rank = replica.rank() as f32;
                let one = |length: usize| {
                    let values: Vec<f32> =
                        (0..length).map(|at| (at as f32 + 0.1) * 0.37_f32.powf(rank) - rank).collect();
                    Tensor::<1>::from_floats(&values[..], &Device::flex())
                };
                let tensors = [1, 0, 7, 1000].map(one).to_vec();
                let sums = wrap(replica).all_reduce_each(tensors).unwrap();
                sums.into_iter().map(|sum| sum.into_data().try_into_vec::<f32>().unwrap()).collect::<Vec<_>>()
            })
        };
        let threads: Vec<_> = ThreadReplica::for_ranks(3).into_iter().map(work).collect();
        let mut all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(all[0] == all[1] && all[1] == all[2], "the ranks differ");
        all.swap_remove(0)
    }

    /// Reads the values of a sum three by three.
    struct InParts(ThreadReplica);

    impl Collective for InParts {
        fn rank(&self) -> usize {
            self.0.rank()
        }

        fn ranks(&self) -> usize {
            self.0.ranks()
        }

        fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
            self.0.gather(own)
        }

        fn sum_f32_while_read(
            &self,
            values: &mut [f32],
            read: &mut dyn FnMut(&mut [f32]) -> Result<(), String>,
        ) -> Result<(), CollectiveError> {
            values.chunks_mut(3).try_for_each(&mut *read).expect("there are enough");
            assert!(read(&mut [0.0]).is_err(), "there are no more");
            self.sum_f32(values)
        }
    }

    #[test]
    fn gradients_are_read_in_parts_that_do_not_end_with_tensors() {
        let parts = sums(|thread| HostReplica::new(InParts(thread)).in_any_order(true));
        assert_eq!(parts, sums(|thread| thread));
    }

    #[test]
    fn one_message_gives_the_bits_of_a_message_for_each_tensor() {
        let (joined, each) = (sums(HostReplica::new), sums(|thread| thread));
        assert_eq!(joined, each);
        assert_eq!(joined.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 7, 1000]);
    }
}
