//! A memory gate that fails in a chosen step and stage, and a meter that measures nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use plimsoll_core::{Bytes, MemoryGate, MemoryMeter, OutOfMemory, Stage};

/// Way in which a [`FailingGate`] fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Failing {
    /// It reports exhausted memory at every check of the stage.
    Memory,
    /// It panics once, as a device that is lost.
    Device,
}

/// A gate that fails in one step.
#[derive(Clone, Debug)]
pub(crate) struct FailingGate {
    how: Failing,
    stage: Stage,
    /// Step that fails, counted from 1.
    step: usize,
    /// Number of completed steps: of checks of an update after a check of a norm.
    done: Arc<AtomicUsize>,
    has_norm: Arc<AtomicBool>,
    has_failed: Arc<AtomicBool>,
}

impl FailingGate {
    pub(crate) fn new(how: Failing, stage: Stage, step: usize) -> Self {
        Self { how, stage, step, done: Arc::default(), has_norm: Arc::default(), has_failed: Arc::default() }
    }
}

impl MemoryGate for FailingGate {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        let done = self.done.load(Relaxed);
        match stage {
            Stage::Norm => self.has_norm.store(true, Relaxed),
            Stage::Update if self.has_norm.swap(false, Relaxed) => self.done.store(done + 1, Relaxed),
            _ => {}
        }
        // A validation and a checkpoint follow a step, all other stages belong to it.
        let step = if matches!(stage, Stage::Validation | Stage::Checkpoint) { done } else { done + 1 };
        if stage != self.stage || step != self.step {
            return Ok(());
        }
        match self.how {
            Failing::Memory => Err(OutOfMemory { stage, reason: "injected by the test".into() }),
            Failing::Device if self.has_failed.swap(true, Relaxed) => Ok(()),
            Failing::Device => panic!("the device is lost, says the test"),
        }
    }
}

/// A meter that measures nothing.
pub(crate) struct NoMeter;

impl MemoryMeter for NoMeter {
    fn current(&self) -> Bytes {
        Bytes(0)
    }
    fn peak(&self) -> Bytes {
        Bytes(0)
    }
    fn reset_peak(&self) {}
}
