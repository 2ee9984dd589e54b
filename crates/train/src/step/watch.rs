//! Who looks after memory in a run: the gate that says whether it held, and the meter that says how much there was.

use std::sync::{Mutex, MutexGuard, PoisonError};

use plimsoll_core::{Bytes, MemoryGate, MemoryMeter, OpenGate, OutOfMemory, Stage};

/// Gate and meter, and the highest that was seen, with the stage in which it was.
pub(crate) struct MemoryWatch {
    gate: Box<dyn MemoryGate>,
    meter: Option<Box<dyn MemoryMeter>>,
    /// Whether asking the meter is cheap enough for every stage.
    is_cheap: bool,
    highest: Mutex<(Bytes, Stage)>,
}

impl MemoryWatch {
    /// Nobody.
    pub(crate) fn disabled() -> Self {
        let highest = Mutex::new((Bytes(0), Stage::Forward));
        Self { gate: Box::new(OpenGate), meter: None, is_cheap: true, highest }
    }

    pub(crate) fn new(gate: Box<dyn MemoryGate>, meter: Box<dyn MemoryMeter>, is_cheap: bool) -> Self {
        Self { gate, meter: Some(meter), is_cheap, ..Self::disabled() }
    }

    /// Begins anew.
    pub(crate) fn start(&self) {
        if let Some(meter) = &self.meter {
            meter.reset_peak();
        }
        *self.locked() = (Bytes(0), Stage::Forward);
    }

    /// The highest since the start, and when it was: at the latest in `last`.
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
        // Two plain values: a panic in between leaves nothing half done.
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
}
