//! Ranks that are silent, dead, slow or failed are named, in time, and to all.

use std::time::Duration;

use plimsoll_core::CollectiveError;
use proptest::prelude::*;

use super::network::{Ranks, SimTransport};
use crate::gather::Gather;
use crate::library_sum::LibrarySum;
use crate::limits::Limits;
use crate::post::Post;

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(100);
const DELAY: Duration = Duration::from_millis(300);

fn gather(rank: usize, post: &Post<SimTransport>) -> Gather {
    Gather::new(vec![rank as u8; 100], 30, post)
}

/// Returns the errors of the ranks that ran a gather in which `idle` took no part.
fn errors(ranks: &mut Ranks, idle: usize) -> Vec<CollectiveError> {
    let ends = ranks.run(STEP, |rank, post| (rank != idle).then(|| gather(rank, post)));
    let ended = ends.into_iter().flatten();
    ended.map(|end| end.map(|_| ()).unwrap_err()).collect()
}

/// Reads values that are there.
fn there(_: &mut [f32]) -> Result<(), String> {
    Ok(())
}

fn gathers(ranks: &mut Ranks) {
    let ends = ranks.run(STEP, |rank, post| Some(gather(rank, post)));
    assert!(ends.iter().all(|end| end.as_ref().unwrap().is_ok()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_silent_rank_is_named_after_the_limit(count in 2..=7_usize, idle in 0..7_usize, seed: u64) {
        let idle = idle % count;
        let limits = Limits::default().with_wait(300 * SECOND);
        let mut ranks = Ranks::new(count, limits, DELAY, seed);
        gathers(&mut ranks);
        let before = ranks.now();
        let errors = errors(&mut ranks, idle);
        prop_assert_eq!(errors.len(), count - 1);
        prop_assert!(errors.iter().all(|error| *error == CollectiveError::timed_out(idle, 300 * SECOND)));
        let waited = ranks.now() - before;
        prop_assert!(waited > 300 * SECOND && waited < 302 * SECOND, "{waited:?}");
        // The silent rank learns it, too.
        ranks.pass(SECOND, STEP);
        let late = ranks.run(STEP, |rank, post| (rank == idle).then(|| gather(rank, post)));
        let late = late[idle].as_ref().unwrap().as_ref().map(|_| ()).unwrap_err();
        prop_assert_eq!(late, &CollectiveError::timed_out(idle, 300 * SECOND));
    }

    #[test]
    fn no_rank_enters_the_library_without_the_others(count in 2..=7_usize, idle in 0..7_usize, seed: u64) {
        let idle = idle % count;
        let mut arrays = vec![vec![1.0_f32; 100]; count];
        let mut ranks = Ranks::new(count, Limits::default().with_wait(300 * SECOND), DELAY, seed);
        let mut reads = vec![there; count];
        let mut open: Vec<_> = arrays.iter_mut().zip(&mut reads).map(Some).collect();
        let ends = ranks.run(STEP, |rank, _| {
            let (values, read) = open[rank].take().unwrap();
            (rank != idle).then(|| LibrarySum::new(values, 64, read))
        });
        for end in ends.into_iter().flatten() {
            prop_assert_eq!(end.err().unwrap(), CollectiveError::timed_out(idle, 300 * SECOND));
        }
        drop(open);
        prop_assert!(arrays.iter().flatten().all(|&value| value == 1.0));
    }

    #[test]
    fn a_rank_that_cannot_read_in_the_middle_of_a_sum_says_why(count in 2..=7_usize, odd in 0..7_usize, after in 0..9_usize, seed: u64) {
        let odd = odd % count;
        let mut arrays = vec![vec![1.0_f32; 640]; count];
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        let read = |rank: usize| {
            let mut parts = 0;
            move |_: &mut [f32]| {
                parts += 1;
                if rank == odd && parts > after { Err("the device is lost".to_string()) } else { Ok(()) }
            }
        };
        let mut reads: Vec<_> = (0..count).map(read).collect();
        let mut open: Vec<_> = arrays.iter_mut().zip(&mut reads).map(Some).collect();
        let ends = ranks.run(STEP, |rank, _| {
            let (values, read) = open[rank].take().unwrap();
            Some(LibrarySum::new(values, 64, read))
        });
        for end in ends {
            prop_assert_eq!(end.unwrap().err().unwrap(), CollectiveError::failed(odd, "the device is lost"));
        }
        prop_assert!(ranks.now() < 5 * SECOND);
    }

    #[test]
    fn a_dead_rank_is_noticed_by_its_heart(count in 2..=7_usize, dead in 0..7_usize, seed: u64) {
        let dead = dead % count;
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        gathers(&mut ranks);
        ranks.pass(100 * SECOND, STEP);
        ranks.stopped[dead] = true;
        let before = ranks.now();
        let errors = errors(&mut ranks, dead);
        prop_assert_eq!(errors.len(), count - 1);
        for error in errors {
            prop_assert_eq!(error.to_string(), format!("replica {dead} has given no sign of life for 60 s"));
        }
        let waited = ranks.now() - before;
        prop_assert!(waited > 56 * SECOND && waited < 62 * SECOND, "{waited:?}");
    }

    #[test]
    fn dead_neighbors_are_noticed(count in 3..=7_usize, first in 0..7_usize, dead in 2..6_usize, seed: u64) {
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        for index in 0..dead.min(count - 1) {
            ranks.stopped[(first + index) % count] = true;
        }
        let stopped = ranks.stopped.clone();
        let errors = errors(&mut ranks, usize::MAX);
        prop_assert!(errors.iter().all(|error| stopped[error.rank]), "{errors:?}");
        prop_assert!(ranks.now() < 62 * SECOND);
    }

    #[test]
    fn a_rank_that_computes_long_is_alive(count in 2..=7_usize, slow in 0..7_usize, seed: u64) {
        let slow = slow % count;
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        // 25 minutes without any operation, and then one.
        ranks.pass(25 * 60 * SECOND, SECOND);
        gathers(&mut ranks);
        // A rank that was stopped for less than the limit goes on.
        ranks.stopped[slow] = true;
        ranks.pass(50 * SECOND, STEP);
        ranks.stopped[slow] = false;
        gathers(&mut ranks);
    }

    #[test]
    fn a_failure_reaches_all_with_its_reason(count in 2..=7_usize, failed in 0..7_usize, seed: u64) {
        let failed = failed % count;
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        gathers(&mut ranks);
        ranks.engines[failed].report(CollectiveError::failed(failed, "out of memory"));
        let before = ranks.now();
        for error in errors(&mut ranks, usize::MAX) {
            prop_assert_eq!(error.to_string(), format!("replica {failed} failed: out of memory"));
        }
        prop_assert!(ranks.now() - before < SECOND);
    }

    #[test]
    fn a_rank_that_left_is_gone_for_later_operations_only(count in 2..=7_usize, seed: u64) {
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        // Each rank leaves as soon as it has completed the operation, while others are still at it.
        let mut running: Vec<_> = (0..count).map(|rank| {
            let engine = &mut ranks.engines[rank];
            let started = engine.start(Duration::ZERO).unwrap();
            Some((gather(rank, engine.post()), started))
        }).collect();
        while running.iter().any(Option::is_some) {
            ranks.pass(STEP, STEP);
            let now = ranks.now();
            for (engine, running) in ranks.engines.iter_mut().zip(&mut running) {
                if let Some((operation, started)) = running
                    && let Some(end) = engine.advance(operation, started, now)
                {
                    prop_assert_eq!(end, Ok(()));
                    engine.leave(now);
                    *running = None;
                }
            }
        }
        ranks.pass(SECOND, STEP);
        let now = ranks.now();
        for engine in &mut ranks.engines {
            prop_assert_eq!(engine.farewell(false, now), Some(true));
            prop_assert!(engine.start(now).err().unwrap().to_string().ends_with(" is gone"));
        }
    }

    #[test]
    fn sums_of_other_lengths_and_other_operations_are_refused(count in 2..=5_usize, odd in 0..5_usize, seed: u64) {
        let odd = odd % count;
        let mut arrays = vec![vec![1.0_f32; 100]; count];
        arrays[odd].push(1.0);
        let mut ranks = Ranks::new(count, Limits::default(), DELAY, seed);
        let mut reads = vec![there; count];
        let mut open: Vec<_> = arrays.iter_mut().zip(&mut reads).map(Some).collect();
        let ends = ranks.run(STEP, |rank, _| {
            let (values, read) = open[rank].take().unwrap();
            Some(LibrarySum::new(values, 64, read))
        });
        prop_assert!(ends.into_iter().all(|end| end.unwrap().err().unwrap().cause.contains("numbers to a sum")));

        let mut ranks = Ranks::new(2, Limits::default(), DELAY, seed);
        let started = ranks.engines[0].start(Duration::ZERO).unwrap();
        let mut values = [1.0_f32];
        let mut read = there;
        let mut own = (LibrarySum::new(&mut values, 64, &mut read), started);
        let started = ranks.engines[1].start(Duration::ZERO).unwrap();
        let mut other = (gather(1, ranks.engines[1].post()), started);
        let mut ends = (None, None);
        while ends.0.is_none() || ends.1.is_none() {
            ranks.pass(STEP, STEP);
            let now = ranks.now();
            ends.0 = ends.0.or_else(|| ranks.engines[0].advance(&mut own.0, &mut own.1, now));
            ends.1 = ends.1.or_else(|| ranks.engines[1].advance(&mut other.0, &mut other.1, now));
        }
        for end in [ends.0.unwrap(), ends.1.unwrap()] {
            let text = end.unwrap_err().to_string();
            prop_assert!(text.contains("called `") && text.contains("where this replica called `"), "{text}");
        }
    }
}

#[test]
fn a_failure_explains_more_than_an_end() {
    let mut ranks = Ranks::new(3, Limits::default(), Duration::ZERO, 1);
    ranks.engines[2].report(CollectiveError::failed(2, "the disk is full"));
    ranks.pass(STEP, STEP);
    let now = ranks.now();
    ranks.engines[1].leave(now);
    ranks.pass(STEP, STEP);
    let now = ranks.now();
    let error = ranks.engines[0].start(now).err().unwrap();
    assert_eq!(error.to_string(), "replica 2 failed: the disk is full");
}

#[test]
fn a_farewell_of_a_failed_run_is_short() {
    let mut ranks = Ranks::new(2, Limits::default(), Duration::ZERO, 1);
    ranks.engines[0].report(CollectiveError::failed(0, "on purpose"));
    ranks.engines[0].leave(Duration::ZERO);
    assert_eq!(ranks.engines[0].farewell(false, SECOND), None);
    assert_eq!(ranks.engines[0].farewell(false, 6 * SECOND), Some(false));
}
