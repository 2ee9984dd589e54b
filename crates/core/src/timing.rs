//! Measures which owner the time of a thread belongs to.
//!
//! Each thread has a clock. A [`TimeGuard`] names the owner of the time until it is dropped; a guard inside another takes
//! the time from the outer one, so no time counts twice. [`lap`] returns the time since the last lap by owner. Time
//! outside of every guard is unknown.
//!
//! In a run, the loop, the step, checkpoints and validations of `plimsoll-train` open the guards, and the loop takes a lap
//! at each step. On a GPU the wait for the norm of the gradient counts as computing: the device works then. Four owners
//! are found afterwards: `Retry` when a memory failure undoes work, `Compile` when a GPU meets a new shape, `OtherProcess`
//! by the counts of the scheduler, and `Throttled` by the clock that a GPU loses to a limit.
//!
//! ```
//! use plimsoll_core::{TimeOwner, timing};
//!
//! timing::lap();
//! let batch = timing::measure(TimeOwner::Data, || vec![1.0; 4]);
//! let loss: f64 = timing::measure(TimeOwner::Compute, || batch.iter().sum());
//! let times = timing::lap();
//! println!("loss {loss}: {} s of {} s were computing", times.get(TimeOwner::Compute), times.total());
//! ```

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::{TimeOwner, TimeShares};

/// Whether the clocks of all threads are off.
static IS_OFF: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::new(Clock::new());
}

/// Clock of a thread: the owners of the guards that are open, and the times since the last lap.
struct Clock {
    open: Vec<TimeOwner>,
    since: Instant,
    times: TimeShares,
}

impl Clock {
    fn new() -> Self {
        Self { open: Vec::new(), since: Instant::now(), times: TimeShares::default() }
    }

    /// Gives the time since the last change to the owner of the innermost guard.
    fn settle(&mut self) {
        if IS_OFF.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        let owner = self.open.last().copied().unwrap_or(TimeOwner::Unknown);
        self.times.add(owner, (now - self.since).as_secs_f64());
        self.since = now;
    }
}

/// Turns the clocks of all threads off or on, for a measurement of what they cost. While they are off, no time is counted.
/// The lap in which they are turned on again counts that time.
pub fn turn_off(is_off: bool) {
    IS_OFF.store(is_off, Ordering::Relaxed);
}

/// Returns whether the clocks are off.
pub fn is_off() -> bool {
    IS_OFF.load(Ordering::Relaxed)
}

/// Names the owner of the time of this thread until it is dropped.
#[derive(Debug)]
#[must_use = "the time belongs to the owner until the guard is dropped"]
pub struct TimeGuard {
    /// A guard belongs to the clock of its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for TimeGuard {
    fn drop(&mut self) {
        // A thread that ends may have lost its clock already.
        let _ = CLOCK.try_with(|clock| {
            let mut clock = clock.borrow_mut();
            clock.settle();
            clock.open.pop();
        });
    }
}

/// Gives the time of this thread to `owner` until the guard is dropped. Guards must be dropped in the reverse order of
/// their creation, as scopes do.
pub fn enter(owner: TimeOwner) -> TimeGuard {
    CLOCK.with_borrow_mut(|clock| {
        clock.settle();
        clock.open.push(owner);
    });
    TimeGuard { _thread: PhantomData }
}

/// Runs `work`, and gives its time to `owner`.
pub fn measure<R>(owner: TimeOwner, work: impl FnOnce() -> R) -> R {
    let _guard = enter(owner);
    work()
}

/// Returns the times of this thread since the last lap, without a new lap.
pub fn so_far() -> TimeShares {
    CLOCK.with_borrow_mut(|clock| {
        clock.settle();
        clock.times
    })
}

/// Returns the times of this thread since the last lap, and begins a new one. The first lap begins with the first use
/// of the clock.
pub fn lap() -> TimeShares {
    CLOCK.with_borrow_mut(|clock| {
        clock.settle();
        std::mem::take(&mut clock.times)
    })
}

/// Corrects the times of the current lap, for owners that are known only afterwards.
pub fn correct(change: impl FnOnce(&mut TimeShares)) {
    CLOCK.with_borrow_mut(|clock| {
        clock.settle();
        change(&mut clock.times);
    });
}

/// Gives all the time since `before`, which [`so_far`] has returned in this lap, to `owner`.
///
/// This is for work that turns out to be lost only after it was done.
pub fn reassign_since(before: &TimeShares, owner: TimeOwner) {
    correct(|times| {
        for (from, seconds) in times.since(before).iter().filter(|(from, _)| *from != owner) {
            times.shift(from, owner, seconds);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pass_time() {
        std::thread::sleep(Duration::from_millis(3));
    }

    #[test]
    fn inner_time_does_not_count_for_the_outer_owner() {
        let whole = Instant::now();
        lap();
        measure(TimeOwner::Validation, || {
            pass_time();
            measure(TimeOwner::Data, pass_time);
        });
        pass_time();
        let (times, wall) = (lap(), whole.elapsed().as_secs_f64());
        for owner in [TimeOwner::Validation, TimeOwner::Data, TimeOwner::Unknown] {
            assert!(times.get(owner) >= 0.003, "{owner}: {times:?}");
        }
        assert!(times.total() <= wall, "{times:?} in {wall}");
        assert!(so_far().total() < times.total());
    }

    #[test]
    fn a_panic_closes_its_guards() {
        lap();
        let caught = std::panic::catch_unwind(|| {
            measure(TimeOwner::Compute, || measure(TimeOwner::Read, || panic!("on purpose")))
        });
        assert!(caught.is_err());
        lap();
        pass_time();
        let times = lap();
        assert_eq!(times.get(TimeOwner::Unknown), times.total());
    }

    #[test]
    fn lost_work_belongs_to_another_owner() {
        lap();
        measure(TimeOwner::Compute, pass_time);
        let kept = so_far();
        measure(TimeOwner::Submit, pass_time);
        reassign_since(&kept, TimeOwner::Retry);
        let times = lap();
        assert!(times.get(TimeOwner::Submit) == 0.0 && times.get(TimeOwner::Retry) >= 0.003, "{times:?}");
        assert_eq!(times.get(TimeOwner::Compute), kept.get(TimeOwner::Compute));
    }
}
