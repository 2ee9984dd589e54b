//! Replicas that are threads: the real waits, locks and heartbeats.

use std::thread;
use std::time::Duration;

use plimsoll_core::{Collective, CollectiveError};

use crate::limits::Limits;
use crate::local::LocalTransport;
use crate::replica::MessageReplica;

type Replica = MessageReplica<LocalTransport>;

pub(super) fn replicas(count: usize, limits: Limits) -> Vec<Replica> {
    LocalTransport::for_ranks(count).into_iter().map(|transport| Replica::new(transport, limits).unwrap()).collect()
}

pub(super) fn on_threads<R: Send>(replicas: Vec<Replica>, work: impl Fn(&Replica) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = replicas.into_iter().map(|replica| scope.spawn(|| work(&{ replica }))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn all_methods_agree_between_threads() {
    for count in [1, 2, 3, 5] {
        on_threads(replicas(count, Limits::default()), |replica| {
            let rank = replica.rank();
            assert_eq!(replica.ranks(), count);
            for round in 0..20 {
                let mut values: Vec<f32> = (0..40_000).map(|index| (index * rank + round) as f32).collect();
                replica.sum_f32(&mut values).unwrap();
                let ranks: usize = (0..count).sum();
                assert!((0..40_000).all(|index| values[index] == (index * ranks + count * round) as f32));
            }
            let mut values = vec![rank as f64; 10];
            replica.sum(&mut values).unwrap();
            replica.sum(&mut values[1..]).unwrap();
            assert_eq!(replica.agree(rank != 2), Ok(count < 3));
            assert_eq!(&replica.broadcast(count - 1, vec![rank as u8]).unwrap()[..], [count as u8 - 1]);
            assert_eq!(replica.wait_times()[rank], Duration::ZERO);
        });
    }
}

/// Returns the error that two replicas of three get when the third does `end` instead of a gather.
fn error_after(limits: Limits, end: impl Fn(&Replica) + Sync) -> CollectiveError {
    let errors = on_threads(replicas(3, limits), |replica| match replica.rank() {
        2 => {
            end(replica);
            None
        }
        _ => Some(replica.gather(vec![1]).unwrap_err()),
    });
    assert_eq!(errors[0], errors[1], "all replicas get the same error");
    errors[0].clone().unwrap()
}

#[test]
fn a_replica_that_ends_is_named() {
    assert_eq!(error_after(Limits::default(), |_| {}), CollectiveError::gone(2));
    let failed = |replica: &Replica| replica.fail("out of memory");
    assert_eq!(error_after(Limits::default(), failed), CollectiveError::failed(2, "out of memory"));
}

#[test]
fn a_silent_replica_is_named_by_the_real_clock() {
    let limits = Limits::default().with_wait(Duration::from_millis(30));
    let mut both = replicas(2, limits);
    let silent = both.pop().unwrap();
    assert_eq!(both[0].gather(vec![1]).unwrap_err(), CollectiveError::timed_out(1, limits.wait()));
    // What passed before it began to wait counts for the limit alone.
    assert!(both[0].wait_times()[1] > Duration::ZERO);
    assert_eq!(silent.gather(vec![1]).unwrap_err(), CollectiveError::timed_out(1, limits.wait()));
}
