//! Memory gate and meter of a run.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::{Bytes, MemoryGate, MemoryMeter, OpenGate, OutOfMemory, PoolMemory, Stage};

/// Memory gate and memory meter of a trainer, with the highest reading of the meter and the stage of that reading.
pub(crate) struct MemoryWatch {
    gate: Box<dyn MemoryGate>,
    meter: Option<Box<dyn MemoryMeter>>,
    /// Whether the memory meter is cheap enough to read in every stage.
    is_cheap: bool,
    highest: Mutex<(Bytes, Stage)>,
    /// Number of steps whose memory may grow, this one included, and so is read.
    growing: AtomicU32,
    /// Number of steps since the start.
    steps: AtomicU32,
}

/// Every how many steps the memory of a device is read although nothing new was computed: gaps between tensors may add up.
const READ_EVERY: u32 = 16;

impl MemoryWatch {
    /// Makes a watch whose gate never fails and that has no meter.
    pub(crate) fn disabled() -> Self {
        let highest = Mutex::new((Bytes(0), Stage::Forward));
        let (growing, steps) = (AtomicU32::new(0), AtomicU32::new(0));
        Self { gate: Box::new(OpenGate), meter: None, is_cheap: true, highest, growing, steps }
    }

    pub(crate) fn new(gate: Box<dyn MemoryGate>, meter: Box<dyn MemoryMeter>, is_cheap: bool) -> Self {
        Self { gate, meter: Some(meter), is_cheap, ..Self::disabled() }
    }

    /// Returns the memory that the pools of a device have reserved; on the CPU, the peak; without a meter, 0.
    pub(crate) fn reserved(&self) -> Bytes {
        self.meter.as_deref().map_or(Bytes(0), MemoryMeter::peak)
    }

    /// Returns what the memory pools of a GPU hold; `None` without pools.
    pub(crate) fn pools(&self) -> Option<PoolMemory> {
        self.meter.as_deref().and_then(MemoryMeter::pools)
    }

    /// Starts a new measurement of peak memory.
    pub(crate) fn start(&self) {
        if let Some(meter) = &self.meter {
            meter.reset_peak();
        }
        // What is not read again is as it was.
        if self.is_cheap {
            *self.locked() = (Bytes(0), Stage::Forward);
        }
    }

    /// Starts the measurement of a step. Until [`expect_growth`](Self::expect_growth) says otherwise, the step computes only
    /// what earlier steps have computed.
    pub(super) fn start_step(&self) {
        self.start();
        let left = self.growing.load(Relaxed).saturating_sub(1);
        let is_turn = self.steps.fetch_add(1, Relaxed).is_multiple_of(READ_EVERY);
        self.growing.store(left.max(u32::from(is_turn)), Relaxed);
    }

    /// Notes that this step computes something for the first time, so that memory may grow.
    pub(super) fn expect_growth(&self) {
        self.growing.fetch_max(1, Relaxed);
    }

    /// Returns whether the memory in `stage` may be another than at the last reading.
    fn may_grow(&self, stage: Stage) -> bool {
        let is_of_step = !matches!(stage, Stage::Validation | Stage::Checkpoint);
        self.is_cheap || !is_of_step || self.growing.load(Relaxed) > 0
    }

    /// Returns the peak memory since the start and its stage, after a last reading in stage `last`.
    pub(crate) fn end(&self, last: Stage) -> (Bytes, Stage) {
        if self.may_grow(last) {
            if !self.is_cheap {
                *self.locked() = (Bytes(0), Stage::Forward);
            }
            self.note(last);
        }
        let (highest, stage) = *self.locked();
        // Pools are read at the end alone, perhaps of an earlier step or validation.
        (highest, if self.is_cheap { stage } else { last })
    }

    fn note(&self, stage: Stage) {
        let Some(meter) = &self.meter else { return };
        let (peak, mut highest) = (meter.peak(), self.locked());
        if peak > highest.0 {
            *highest = (peak, stage);
        }
    }

    fn locked(&self) -> MutexGuard<'_, (Bytes, Stage)> {
        // Two plain values: a panic leaves nothing half done.
        self.highest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryGate for MemoryWatch {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        if self.is_cheap {
            self.note(stage);
        }
        if self.may_grow(stage) { self.gate.check(stage) } else { self.gate.check_again(stage) }
    }

    fn cleaned_up(&self) {
        // The pools take again what they need, perhaps in another order.
        self.growing.store(READ_EVERY, Relaxed);
        self.gate.cleaned_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pool;

    impl MemoryMeter for Pool {
        fn current(&self) -> Bytes {
            Bytes(3)
        }
        fn peak(&self) -> Bytes {
            Bytes(5)
        }
        fn reset_peak(&self) {}
    }

    #[test]
    fn a_step_that_is_not_read_has_the_last_reading_and_its_own_stage() {
        let watch = MemoryWatch::new(Box::new(OpenGate), Box::new(Pool), false);
        watch.start_step();
        assert_eq!(watch.end(Stage::Update), (Bytes(5), Stage::Update));
        watch.start();
        assert_eq!(watch.end(Stage::Validation), (Bytes(5), Stage::Validation));
        watch.start_step();
        assert!(!watch.may_grow(Stage::Update));
        assert_eq!(watch.end(Stage::Update), (Bytes(5), Stage::Update));
    }
}
