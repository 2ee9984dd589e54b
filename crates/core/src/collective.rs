//! Collective operations between the replicas of a run: several devices that train one model.

use std::sync::Arc;

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
    /// If another replica has ended.
    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError>;

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
            false => Err(CollectiveError { rank: from }),
        }
    }
}

impl<C: Collective + ?Sized> Collective for Box<C> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn ranks(&self) -> usize {
        (**self).ranks()
    }

    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError> {
        (**self).gather(own)
    }
}

/// Error of a collective operation: another replica has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replica {rank} is gone")]
pub struct CollectiveError {
    /// Rank of the replica that has ended.
    pub rank: usize,
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
        assert_eq!((SingleReplica.agree(true), SingleReplica.agree(false)), (Ok(true), Ok(false)));
        assert_eq!(&SingleReplica.broadcast(0, vec![7]).unwrap()[..], [7]);
        assert_eq!(SingleReplica.broadcast(1, vec![7]).unwrap_err().to_string(), "replica 1 is gone");
    }
}
