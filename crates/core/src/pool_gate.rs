//! Gate that holds a memory budget on a device with memory pools.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Bytes, MemoryGate, MemoryMeter, OutOfMemory, Stage};

/// Gate that compares the memory that the pools of a device have reserved with a budget.
///
/// A pool takes pages from the device and keeps them until the trainer cleans up. The gate therefore reports a failure
/// only when the pools have grown above the budget since the last failure or cleanup. The micro-batch that made them grow
/// is then computed again in smaller parts, as after a failed allocation. Pages that a cleanup cannot return, because
/// weights lie in them, are not reported again: smaller parts would not return them either.
///
/// The peak of the meter must be the reserved memory. A meter of pools may have to wait for the device's queue, so the
/// gate reads it once for each micro-batch, when the micro-batch is added to the gradient, and not in the stages before. For
/// sizes that were computed before it does not read it at all, because the pools keep what they have.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use plimsoll_core::{Bytes, MemoryGate, MemoryMeter, PoolGate, Stage};
///
/// struct Pool(AtomicU64);
/// impl MemoryMeter for Pool {
///     fn current(&self) -> Bytes { self.peak() }
///     fn peak(&self) -> Bytes { Bytes(self.0.load(Relaxed)) }
///     fn reset_peak(&self) {}
/// }
///
/// let pool = Pool(AtomicU64::new(100));
/// let gate = PoolGate::new(&pool, Bytes(120));
/// assert!(gate.check(Stage::Accumulate).is_ok());
/// pool.0.store(130, Relaxed);
/// assert!(gate.check(Stage::Accumulate).is_err());
/// ```
#[derive(Debug)]
pub struct PoolGate<M> {
    meter: M,
    budget: Bytes,
    /// Reserved memory above which the pools have grown too much: the budget, or what a cleanup could not return.
    limit: AtomicU64,
}

impl<M: MemoryMeter> PoolGate<M> {
    /// Makes a gate that holds `budget` on the pools that `meter` reads.
    pub fn new(meter: M, budget: Bytes) -> Self {
        Self { meter, budget, limit: AtomicU64::new(budget.0) }
    }
}

impl<M: MemoryMeter> MemoryGate for PoolGate<M> {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        if matches!(stage, Stage::Forward | Stage::Backward) {
            return Ok(());
        }
        let reserved = self.meter.peak();
        if reserved.0 <= self.limit.load(Relaxed) {
            return Ok(());
        }
        self.limit.store(reserved.0, Relaxed);
        let reason = format!("the memory pools have {reserved}, and the budget is {}", self.budget);
        Err(OutOfMemory { stage, reason })
    }

    fn check_again(&self, _: Stage) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn cleaned_up(&self) {
        self.limit.store(self.meter.peak().0.max(self.budget.0), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pool(AtomicU64);

    impl MemoryMeter for Pool {
        fn current(&self) -> Bytes {
            self.peak()
        }
        fn peak(&self) -> Bytes {
            Bytes(self.0.load(Relaxed))
        }
        fn reset_peak(&self) {}
    }

    #[test]
    fn growth_above_the_budget_is_reported_once_and_again_after_a_cleanup() {
        let pool = Pool(AtomicU64::new(90));
        let gate = PoolGate::new(&pool, Bytes(100));
        // Reserved memory before each check, whether a cleanup comes first, and whether the check passes.
        let cases = [
            (100, false, true),
            (120, false, false),
            // The pools did not grow since.
            (120, false, true),
            (125, false, false),
            // The cleanup returned what was above the budget.
            (80, true, true),
            (101, false, false),
            // It could not return all of it.
            (110, true, true),
            (111, false, false),
        ];
        for (index, (reserved, cleaned, passes)) in cases.into_iter().enumerate() {
            pool.0.store(reserved, Relaxed);
            if cleaned {
                gate.cleaned_up();
            }
            for stage in [Stage::Forward, Stage::Backward] {
                assert_eq!(gate.check(stage), Ok(()), "case {index}: the meter is read once for each micro-batch");
            }
            assert_eq!(gate.check_again(Stage::Accumulate), Ok(()), "case {index}");
            assert_eq!(gate.check(Stage::Accumulate).is_ok(), passes, "case {index}");
        }
    }
}
