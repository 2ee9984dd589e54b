//! Memory gate and meter of a run.

use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::{Bytes, MemoryGate, MemoryMeter, OpenGate, OutOfMemory, Stage};

/// Memory gate and memory meter of a trainer, with the highest reading of the meter and the stage of that reading.
pub(crate) struct MemoryWatch {
    gate: Box<dyn MemoryGate>,
    meter: Option<Box<dyn MemoryMeter>>,
    /// Whether the memory meter is cheap enough to read in every stage.
    is_cheap: bool,
    highest: Mutex<(Bytes, Stage)>,
}

impl MemoryWatch {
    /// Makes a watch whose gate never fails and that has no meter.
    pub(crate) fn disabled() -> Self {
        let highest = Mutex::new((Bytes(0), Stage::Forward));
        Self { gate: Box::new(OpenGate), meter: None, is_cheap: true, highest }
    }

    pub(crate) fn new(gate: Box<dyn MemoryGate>, meter: Box<dyn MemoryMeter>, is_cheap: bool) -> Self {
        Self { gate, meter: Some(meter), is_cheap, ..Self::disabled() }
    }

    /// Returns the memory that the pools of a device have reserved; on the CPU, the peak; without a meter, 0.
    pub(crate) fn reserved(&self) -> Bytes {
        self.meter.as_deref().map_or(Bytes(0), MemoryMeter::peak)
    }

    /// Starts a new measurement of peak memory.
    pub(crate) fn start(&self) {
        if let Some(meter) = &self.meter {
            meter.reset_peak();
        }
        *self.locked() = (Bytes(0), Stage::Forward);
    }

    /// Returns the peak memory since the start and its stage, after a last reading in stage `last`.
    pub(crate) fn end(&self, last: Stage) -> (Bytes, Stage) {
        self.note(last);
        *self.locked()
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
        self.gate.check(stage)
    }

    fn cleaned_up(&self) {
        self.gate.cleaned_up();
    }
}
