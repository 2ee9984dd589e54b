//! Gate that holds a memory budget on a device with memory pools.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Bytes, DeviceMemory, MemoryGate, MemoryMeter, OutOfMemory, Stage};

/// Gate that compares the memory that the pools of a device have reserved with a limit.
///
/// The limit is the budget, or less while other processes leave less memory free on the device
/// ([`beside_others`](Self::beside_others)). It is never above the budget, whatever the pools have taken.
///
/// A pool takes pages from the device and keeps them until the trainer cleans up. So a micro-batch that made the pools grow
/// above the limit has succeeded already; the gate reports it, and the trainer cleans up and computes it again in smaller
/// parts, as after a failed allocation. The gate reports it again and again until the pools are cleaned up. Pages that a
/// cleanup cannot return, because weights lie in them, are no failure of what follows: smaller parts would not return them
/// either. The gate reports growth above them.
///
/// The peak of the meter must be the reserved memory. A meter of pools may have to wait for the device's queue, so the
/// gate reads it once for each micro-batch, when the micro-batch is added to the gradient, and not in the stages before. For
/// sizes that were computed before it reads once in a step, after the norm, when the queue is empty.
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
pub struct PoolGate<M> {
    meter: M,
    budget: Bytes,
    /// Device that other processes use too, and the memory of it that stays free; `None` if only the budget counts.
    shared: Option<(Box<dyn DeviceMemory + Send + Sync>, Bytes)>,
    /// Reserved memory that the last cleanup could not return; 0 before the first cleanup.
    kept: AtomicU64,
}

impl<M: MemoryMeter> PoolGate<M> {
    /// Makes a gate that holds `budget` on the pools that `meter` reads.
    pub fn new(meter: M, budget: Bytes) -> Self {
        Self { meter, budget, shared: None, kept: AtomicU64::new(0) }
    }

    /// Lowers the limit while less than `room` of `device` is free, because other processes have taken memory: the pools then
    /// give back as much as they can. When the others have ended, the limit is the budget again.
    #[must_use]
    pub fn beside_others(self, device: impl DeviceMemory + Send + Sync + 'static, room: Bytes) -> Self {
        Self { shared: Some((Box::new(device), room)), ..self }
    }

    /// Returns the memory that the pools may have now, which reserve `reserved`: at most the budget.
    fn limit(&self, reserved: Bytes) -> Bytes {
        // A driver that does not answer says nothing about other processes.
        let free = self.shared.as_ref().and_then(|(device, room)| Some((device.free().ok()?, *room)));
        match free {
            Some((free, room)) => Bytes((reserved.0.saturating_add(free.0)).saturating_sub(room.0)).min(self.budget),
            None => self.budget,
        }
    }
}

impl<M> std::fmt::Debug for PoolGate<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolGate").field("budget", &self.budget).field("kept", &self.kept).finish_non_exhaustive()
    }
}

impl<M: MemoryMeter> MemoryGate for PoolGate<M> {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        if matches!(stage, Stage::Forward | Stage::Backward) {
            return Ok(());
        }
        let reserved = self.meter.peak();
        // Most steps end here, without a question to the driver about others.
        if reserved.0 <= self.kept.load(Relaxed) {
            return Ok(());
        }
        let limit = self.limit(reserved);
        if reserved <= limit {
            return Ok(());
        }
        let reason = match limit < self.budget {
            true => format!("the memory pools have {reserved}; beside other processes they may have {limit}"),
            false => format!("the memory pools have {reserved}, and the budget is {}", self.budget),
        };
        Err(OutOfMemory { stage, reason })
    }

    fn check_again(&self, stage: Stage) -> Result<(), OutOfMemory> {
        match stage {
            Stage::Norm => self.check(stage),
            _ => Ok(()),
        }
    }

    fn cleaned_up(&self) {
        self.kept.store(self.meter.peak().0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::ProbeError;

    /// A device of a size, with the pools of a run and the memory of another process.
    #[derive(Debug, Default)]
    struct Device {
        size: u64,
        pools: AtomicU64,
        other: AtomicU64,
    }

    impl Device {
        fn free_bytes(&self) -> u64 {
            self.size - self.pools.load(Relaxed) - self.other.load(Relaxed)
        }
    }

    struct Shared(Arc<Device>);

    impl MemoryMeter for Shared {
        fn current(&self) -> Bytes {
            self.peak()
        }
        fn peak(&self) -> Bytes {
            Bytes(self.0.pools.load(Relaxed))
        }
        fn reset_peak(&self) {}
    }

    impl DeviceMemory for Shared {
        fn free(&self) -> Result<Bytes, ProbeError> {
            Ok(Bytes(self.0.free_bytes()))
        }
    }

    #[test]
    fn growth_above_the_budget_is_reported_until_a_cleanup() {
        let pools = Arc::new(Device { size: 1000, ..Device::default() });
        let gate = PoolGate::new(Shared(pools.clone()), Bytes(100));
        // Reserved memory before each check, whether a cleanup comes first, and whether the check passes.
        let cases = [
            (100, false, true),
            (120, false, false),
            // What was taken does not raise the limit.
            (120, false, false),
            // The cleanup returned what was above the budget.
            (80, true, true),
            (101, false, false),
            // It could not return all of it.
            (110, true, true),
            (111, false, false),
            // A later cleanup could: the limit is the budget again.
            (70, true, true),
            (105, false, false),
        ];
        for (index, (reserved, cleaned, passes)) in cases.into_iter().enumerate() {
            pools.pools.store(reserved, Relaxed);
            if cleaned {
                gate.cleaned_up();
            }
            for stage in [Stage::Forward, Stage::Backward] {
                assert_eq!(gate.check(stage), Ok(()), "case {index}: the meter is read once for each micro-batch");
            }
            assert_eq!(gate.check_again(Stage::Accumulate), Ok(()), "case {index}");
            for found in [gate.check(Stage::Accumulate), gate.check_again(Stage::Norm)] {
                assert_eq!(found.is_ok(), passes, "case {index}");
            }
        }
    }

    /// Something that happens on a device.
    #[derive(Clone, Copy, Debug)]
    enum Happening {
        /// A micro-batch needs so much beside the weights.
        Needs(u64),
        /// Another process holds so much from now on.
        OtherHolds(u64),
        /// A cleanup returns all pages without weights.
        CleanUp,
    }

    fn happenings() -> impl Strategy<Value = Vec<Happening>> {
        let one = prop_oneof![
            (0..120u64).prop_map(Happening::Needs),
            (0..120u64).prop_map(Happening::OtherHolds),
            Just(Happening::CleanUp),
        ];
        proptest::collection::vec(one, 1..60)
    }

    proptest! {
        #[test]
        fn the_limit_holds_in_every_sequence(
            happenings in happenings(), weights in 0..60u64, budget in 1..130u64, room in 0..20u64,
        ) {
            let device = Arc::new(Device { size: 120, ..Device::default() });
            let gate = PoolGate::new(Shared(device.clone()), Bytes(budget)).beside_others(Shared(device.clone()), Bytes(room));
            device.pools.store(weights, Relaxed);
            let mut kept = 0;
            for happening in happenings {
                match happening {
                    // What does not fit is refused by the device.
                    Happening::Needs(bytes) if weights + bytes <= device.size - device.other.load(Relaxed) => {
                        device.pools.fetch_max(weights + bytes, Relaxed);
                    }
                    Happening::Needs(_) => {}
                    // The other process gets what is free at most.
                    Happening::OtherHolds(bytes) => {
                        device.other.store(bytes.min(device.size - device.pools.load(Relaxed)), Relaxed);
                    }
                    Happening::CleanUp => {
                        device.pools.store(weights, Relaxed);
                        gate.cleaned_up();
                        kept = weights;
                    }
                }
                let (reserved, free) = (device.pools.load(Relaxed), device.free_bytes());
                let limit = budget.min((reserved + free).saturating_sub(room));
                prop_assert_eq!(gate.limit(Bytes(reserved)), Bytes(limit));
                // Twice: a report changes nothing.
                for _ in 0..2 {
                    prop_assert_eq!(gate.check(Stage::Accumulate).is_ok(), reserved <= limit.max(kept));
                    prop_assert_eq!(gate.check_again(Stage::Norm).is_ok(), reserved <= limit.max(kept));
                }
            }
            // The other process is gone, and the pools are clean: all of the budget is there again.
            device.other.store(0, Relaxed);
            device.pools.store(weights, Relaxed);
            gate.cleaned_up();
            prop_assert_eq!(gate.limit(Bytes(weights)), Bytes(budget.min(device.size - room)));
            if budget.max(weights) < device.size {
                device.pools.store(budget.max(weights) + 1, Relaxed);
                prop_assert!(gate.check(Stage::Accumulate).is_err());
            }
        }
    }
}
