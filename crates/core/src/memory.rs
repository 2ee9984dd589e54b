//! Who can be asked about memory, and the allocator that answers for the CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::Bytes;

/// A device that can say how much memory it has left.
///
/// The planner asks through it, so it runs in tests without a GPU.
pub trait DeviceMemory {
    /// Memory free at this moment, after everything already allocated.
    fn free(&self) -> Result<Bytes, ProbeError>;
}

/// A meter of the memory that this process uses on the device it trains on.
///
/// The trainer reads it around a step: the counting allocator answers on the CPU, the device's own pools on a card.
pub trait MemoryMeter: Send + Sync {
    /// In use now.
    fn current(&self) -> Bytes;
    /// The most in use at once since the last `reset_peak`.
    fn peak(&self) -> Bytes;
    /// Starts a new peak at what is in use now.
    fn reset_peak(&self);
}

impl<M: MemoryMeter + ?Sized> MemoryMeter for Box<M> {
    fn current(&self) -> Bytes {
        (**self).current()
    }
    fn peak(&self) -> Bytes {
        (**self).peak()
    }
    fn reset_peak(&self) {
        (**self).reset_peak();
    }
}

impl<M: MemoryMeter + ?Sized> MemoryMeter for &M {
    fn current(&self) -> Bytes {
        (**self).current()
    }
    fn peak(&self) -> Bytes {
        (**self).peak()
    }
    fn reset_peak(&self) {
        (**self).reset_peak();
    }
}

/// A part of a run's work in which memory can run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The loss of a piece.
    Forward,
    /// The gradients of a piece.
    Backward,
    /// The sum of the gradients of two pieces.
    Accumulate,
    /// The norm of the whole gradient.
    Norm,
    /// The move of parameters and optimizer.
    Update,
    /// A validation.
    Validation,
    /// The copy of a run's state for a checkpoint.
    Checkpoint,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward pass",
            Self::Backward => "backward pass",
            Self::Accumulate => "sum of gradients",
            Self::Norm => "norm of the gradient",
            Self::Update => "update",
            Self::Validation => "validation",
            Self::Checkpoint => "checkpoint",
        })
    }
}

/// Memory that could not be had. There is one such event, wherever it was noticed: a device's error, a panic of a
/// backend, or a budget that was passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("out of memory in the {stage}: {reason}")]
pub struct OutOfMemory {
    /// Where.
    pub stage: Stage,
    /// What was said.
    pub reason: String,
}

/// Who says that memory ran out where no device does.
///
/// A trainer asks at the moments from which it can still go back. A card needs no gate, as what is read from it tells; on
/// the CPU, whose memory is the process's own, the counting allocator plays the card and notes when its budget is
/// passed; a test lets memory run out wherever it likes.
pub trait MemoryGate: Send + Sync {
    /// Whether memory has held since it was last asked.
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory>;
}

/// A gate that is always open: the device speaks for itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenGate;

impl MemoryGate for OpenGate {
    fn check(&self, _: Stage) -> Result<(), OutOfMemory> {
        Ok(())
    }
}

impl<G: MemoryGate + ?Sized> MemoryGate for Box<G> {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        (**self).check(stage)
    }
}

impl<G: MemoryGate + ?Sized> MemoryGate for &G {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        (**self).check(stage)
    }
}

/// Why a device did not say how much memory it has.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("cannot read the memory of {device}: {reason}")]
pub struct ProbeError {
    /// The device that was asked.
    pub device: String,
    /// What it answered.
    pub reason: String,
}

/// The system's allocator, counting what it gives out.
///
/// Two relaxed additions per allocation; tensors are few and large, so a training step does not feel it. A program
/// makes it its `#[global_allocator]` and reads it as a [`MemoryMeter`]. Under a [budget](Self::set_budget) it is a
/// [`MemoryGate`], too: it never refuses memory, which would end the process, but notes that a card of that size would have.
#[derive(Debug)]
pub struct CountingAllocator {
    current: AtomicUsize,
    peak: AtomicUsize,
    budget: AtomicUsize,
    /// The most that was in use over the budget since somebody last asked.
    over: AtomicUsize,
}

impl CountingAllocator {
    /// A counter at zero.
    pub const fn new() -> Self {
        let (current, peak, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        Self { current, peak, budget: AtomicUsize::new(usize::MAX), over }
    }

    /// Sets what may be in use at once, or lifts the limit. What happened before is forgotten.
    pub fn set_budget(&self, budget: Option<Bytes>) {
        let bytes = budget.map_or(usize::MAX, |bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX));
        self.budget.store(bytes, Relaxed);
        self.over.store(0, Relaxed);
    }

    /// The most that was in use over the budget since this was last asked.
    pub fn overrun(&self) -> Option<Bytes> {
        match self.over.swap(0, Relaxed) {
            0 => None,
            most => Some(Bytes(most as u64)),
        }
    }

    fn grow(&self, size: usize) {
        let now = self.current.fetch_add(size, Relaxed) + size;
        self.peak.fetch_max(now, Relaxed);
        if now > self.budget.load(Relaxed) {
            self.over.fetch_max(now, Relaxed);
        }
    }

    fn shrink(&self, size: usize) {
        self.current.fetch_sub(size, Relaxed);
    }
}

impl Default for CountingAllocator {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: every call is passed to the system's allocator unchanged; counting touches nothing but two atomics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            self.grow(layout.size());
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            self.grow(layout.size());
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.shrink(layout.size());
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            // Grow first: while the system copies, both blocks may be held.
            self.grow(size);
            self.shrink(layout.size());
        }
        moved
    }
}

impl MemoryMeter for CountingAllocator {
    fn current(&self) -> Bytes {
        Bytes(self.current.load(Relaxed) as u64)
    }

    fn peak(&self) -> Bytes {
        Bytes(self.peak.load(Relaxed) as u64)
    }

    fn reset_peak(&self) {
        self.peak.store(self.current.load(Relaxed), Relaxed);
    }
}

impl MemoryGate for CountingAllocator {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        let Some(most) = self.overrun() else { return Ok(()) };
        let budget = Bytes(self.budget.load(Relaxed) as u64);
        Err(OutOfMemory { stage, reason: format!("{most} in use, and the budget is {budget}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_was_passed_is_told_once() {
        let counter = CountingAllocator::new();
        counter.set_budget(Some(Bytes(4000)));
        let layout = Layout::from_size_align(3000, 16).unwrap();
        unsafe {
            let first = counter.alloc(layout);
            assert_eq!(counter.check(Stage::Forward), Ok(()));
            let second = counter.alloc(layout);
            counter.dealloc(second, layout);
            counter.dealloc(first, layout);
        }
        let error = counter.check(Stage::Backward).unwrap_err().to_string();
        assert_eq!(error, "out of memory in the backward pass: 5.86 KiB in use, and the budget is 3.91 KiB");
        assert_eq!(counter.check(Stage::Backward), Ok(()));
    }

    #[test]
    fn the_peak_outlives_what_made_it() {
        let counter = CountingAllocator::new();
        let layout = Layout::from_size_align(4096, 16).unwrap();
        unsafe {
            let first = counter.alloc(layout);
            let second = counter.alloc_zeroed(layout);
            counter.dealloc(first, layout);
            let second = counter.realloc(second, layout, 1024);
            assert_eq!(counter.current(), Bytes(1024));
            assert_eq!(counter.peak(), Bytes(8192));
            counter.reset_peak();
            assert_eq!(counter.peak(), Bytes(1024));
            counter.dealloc(second, Layout::from_size_align(1024, 16).unwrap());
        }
        assert_eq!(counter.current(), Bytes(0));
    }
}
