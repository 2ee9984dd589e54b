//! What the replicas of a run do together: several devices that train one model.

use std::sync::Arc;

/// A replica's way to the others.
///
/// Every replica calls the same methods in the same order; a call returns when all have made it. It lies here because
/// trainer and program speak of it, and threads, cards and, one day, machines are behind it.
pub trait Collective: Send + Sync {
    /// The number of this replica, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// What every replica brought, in the order of their ranks.
    ///
    /// # Errors
    /// Where another one is gone, and will never bring anything.
    fn gather(&self, own: Vec<u8>) -> Result<Vec<Arc<[u8]>>, CollectiveError>;

    /// Adds up `values` over all replicas, in the order of their ranks, so that all have the same bits afterwards.
    fn sum(&self, values: &mut [f64]) -> Result<(), CollectiveError> {
        let own = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.gather(own)?;
        for (place, value) in values.iter_mut().enumerate() {
            let of = |bytes: &Arc<[u8]>| {
                bytes.get(place * 8..place * 8 + 8).and_then(|bytes| bytes.try_into().ok()).map(f64::from_le_bytes)
            };
            *value = all.iter().map(|bytes| of(bytes).unwrap_or(f64::NAN)).sum();
        }
        Ok(())
    }

    /// Whether all replicas say yes.
    fn agree(&self, yes: bool) -> Result<bool, CollectiveError> {
        Ok(self.gather(vec![u8::from(yes)])?.iter().all(|answer| answer[..] == [1]))
    }

    /// What replica `from` has; what the others bring is not looked at.
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

/// A replica is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("replica {rank} is gone")]
pub struct CollectiveError {
    /// Which.
    pub rank: usize,
}

/// The way of a run that has one replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Collective for Alone {
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
    fn who_is_alone_agrees_with_itself() {
        let mut values = [1.5, -2.0];
        Alone.sum(&mut values).unwrap();
        assert_eq!(values, [1.5, -2.0]);
        assert_eq!((Alone.agree(true), Alone.agree(false)), (Ok(true), Ok(false)));
        assert_eq!(&Alone.broadcast(0, vec![7]).unwrap()[..], [7]);
        assert_eq!(Alone.broadcast(1, vec![7]).unwrap_err().to_string(), "replica 1 is gone");
    }
}
