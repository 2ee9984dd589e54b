//! Collective operations between the replicas of a run: several devices that train one model.

use std::sync::Arc;
use std::time::Duration;

/// Collective operations between one replica and all other replicas.
///
/// All replicas must call the same methods in the same order. A call returns when all replicas have made it. The
/// trainer depends on this trait only, so threads, processes or machines can implement it.
pub trait Collective: Send + Sync {
    /// Returns the index of this replica, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of replicas that share each batch.
    fn ranks(&self) -> usize;

    /// All-gather: sends the bytes `own` to all replicas, and returns the bytes of each replica in the order of the
    /// ranks.
    ///
    /// # Errors
    /// If another replica has ended, has failed, or does not answer in time.
    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError>;

    /// Reports to the other replicas that this replica has failed with `reason` and takes part in no further operation.
    /// Their calls that wait for it then return an error with its rank and the reason. The default does nothing.
    fn fail(&self, reason: &str) {
        let _ = reason;
    }

    /// All-reduce: replaces `values` by their sums over all replicas. The sums run in the order of the ranks, so that
    /// all replicas get the same bits. If a replica gives fewer values, the missing sums are NaN.
    ///
    /// # Errors
    /// If another replica has ended.
    fn sum(&self, values: &mut [f64]) -> Result<(), CollectiveError> {
        let own = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.gather(own)?;
        for (index, value) in values.iter_mut().enumerate() {
            let decode = |bytes: &Arc<[u8]>| {
                bytes.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok()).map(f64::from_le_bytes)
            };
            *value = all.iter().map(|bytes| decode(bytes).unwrap_or(f64::NAN)).sum();
        }
        Ok(())
    }

    /// All-reduce in single precision, for many values: replaces `values` by their sums over all replicas, as
    /// [`sum`](Self::sum) does. All replicas must give the same number of values. The default gathers the values of all
    /// replicas; an implementation may move less, with the same bits.
    ///
    /// # Errors
    /// If another replica has ended.
    fn sum_f32(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        let own = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.gather(own)?;
        for (index, value) in values.iter_mut().enumerate() {
            let decode = |bytes: &Arc<[u8]>| {
                bytes.get(index * 4..index * 4 + 4).and_then(|bytes| bytes.try_into().ok()).map(f32::from_le_bytes)
            };
            // From the first value on, not from zero: the sum of nothing but -0.0 is -0.0.
            let sum = all.iter().map(|bytes| decode(bytes).unwrap_or(f32::NAN)).reduce(|sum, next| sum + next);
            *value = sum.unwrap_or(f32::NAN);
        }
        Ok(())
    }

    /// All-reduce as [`sum_f32`](Self::sum_f32), in the order that is fastest: a network's library may add in another one. All
    /// replicas get the same bits. The default is the order of the ranks.
    ///
    /// # Errors
    /// If another replica has ended.
    fn sum_f32_in_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
        self.sum_f32(values)
    }

    /// All-reduce as [`sum_f32_in_any_order`](Self::sum_f32_in_any_order), of values that are not there yet: each call of `read`
    /// fills the slice that it gets with the next ones. A network may carry the first while the next are read. The default reads
    /// all of them first.
    ///
    /// # Errors
    /// If another replica has ended, or `read` fails, which is reported to the others.
    fn sum_f32_while_read(
        &self,
        values: &mut [f32],
        read: &mut dyn FnMut(&mut [f32]) -> Result<(), String>,
    ) -> Result<(), CollectiveError> {
        read(values).map_err(|reason| {
            self.fail(&reason);
            CollectiveError::failed(self.rank(), &reason)
        })?;
        self.sum_f32_in_any_order(values)
    }

    /// Returns whether all replicas pass `true` as `yes`.
    ///
    /// # Errors
    /// If another replica has ended.
    fn agree(&self, yes: bool) -> Result<bool, CollectiveError> {
        Ok(self.gather(vec![u8::from(yes)])?.iter().all(|answer| answer[..] == [1]))
    }

    /// Broadcast: returns the bytes of replica `from`. The `own` bytes of the other replicas are ignored.
    ///
    /// # Errors
    /// If another replica has ended, or there is no replica `from`.
    fn broadcast(&self, from: usize, own: Vec<u8>) -> Result<Arc<[u8]>, CollectiveError> {
        let own = if self.rank() == from { own } else { Vec::new() };
        let mut all = self.gather(own)?;
        match from < all.len() {
            true => Ok(all.swap_remove(from)),
            false => Err(CollectiveError::gone(from)),
        }
    }
}

/// Implements [`Collective`] for a pointer to one.
macro_rules! by_pointer {
    ($pointer:ident) => {
        impl<C: Collective + ?Sized> Collective for $pointer<C> {
            fn rank(&self) -> usize {
                (**self).rank()
            }

            fn ranks(&self) -> usize {
                (**self).ranks()
            }

            fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
                (**self).gather(own)
            }

            fn fail(&self, reason: &str) {
                (**self).fail(reason);
            }

            fn sum(&self, values: &mut [f64]) -> Result<(), CollectiveError> {
                (**self).sum(values)
            }

            fn sum_f32(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
                (**self).sum_f32(values)
            }

            fn sum_f32_in_any_order(&self, values: &mut [f32]) -> Result<(), CollectiveError> {
                (**self).sum_f32_in_any_order(values)
            }

            fn sum_f32_while_read(
                &self,
                values: &mut [f32],
                read: &mut dyn FnMut(&mut [f32]) -> Result<(), String>,
            ) -> Result<(), CollectiveError> {
                (**self).sum_f32_while_read(values, read)
            }

            fn agree(&self, yes: bool) -> Result<bool, CollectiveError> {
                (**self).agree(yes)
            }

            fn broadcast(&self, from: usize, own: Vec<u8>) -> Result<Arc<[u8]>, CollectiveError> {
                (**self).broadcast(from, own)
            }
        }
    };
}

by_pointer!(Box);
by_pointer!(Arc);

/// Error of a collective operation: a replica takes no further part in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replica {rank} {cause}")]
pub struct CollectiveError {
    /// Rank of the replica that failed.
    pub rank: usize,
    /// Way in which it failed, as the end of a sentence that begins with the replica: `is gone`.
    pub cause: String,
}

impl CollectiveError {
    /// Makes the error for a replica that has ended without a message.
    pub fn gone(rank: usize) -> Self {
        Self { rank, cause: "is gone".into() }
    }

    /// Makes the error for a replica that has failed with `reason`.
    pub fn failed(rank: usize, reason: &str) -> Self {
        Self { rank, cause: format!("failed: {reason}") }
    }

    /// Makes the error for a replica that has not answered for `wait`.
    pub fn timed_out(rank: usize, wait: Duration) -> Self {
        Self { rank, cause: format!("did not answer for {} s", wait.as_secs()) }
    }
}

/// [`Collective`] of a run with one replica: all operations return at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleReplica;

impl Collective for SingleReplica {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        Ok(vec![own.into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_replica_gets_its_own_values() {
        let mut values = [1.5, -2.0];
        SingleReplica.sum(&mut values).unwrap();
        assert_eq!(values, [1.5, -2.0]);
        let mut values = [1.5, -0.0];
        SingleReplica.sum_f32(&mut values).unwrap();
        assert_eq!(values.map(f32::to_bits), [1.5_f32, -0.0].map(f32::to_bits));
        let mut fill = |out: &mut [f32]| {
            out.fill(2.5);
            Ok(())
        };
        SingleReplica.sum_f32_while_read(&mut values, &mut fill).unwrap();
        assert_eq!(values, [2.5, 2.5]);
        let error =
            SingleReplica.sum_f32_while_read(&mut values, &mut |_| Err("the device is lost".into())).unwrap_err();
        assert_eq!(error.to_string(), "replica 0 failed: the device is lost");
        assert_eq!((SingleReplica.agree(true), SingleReplica.agree(false)), (Ok(true), Ok(false)));
        assert_eq!(&SingleReplica.broadcast(0, vec![7]).unwrap()[..], [7]);
        assert_eq!(SingleReplica.broadcast(1, vec![7]).unwrap_err().to_string(), "replica 1 is gone");
    }
}
