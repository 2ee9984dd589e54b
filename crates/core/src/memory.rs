//! Who can be asked about memory, and the allocator that answers for the CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
/// makes it its `#[global_allocator]` and reads it as a [`MemoryMeter`].
#[derive(Debug)]
pub struct CountingAllocator {
    current: AtomicUsize,
    peak: AtomicUsize,
}

impl CountingAllocator {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self { current: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    fn grow(&self, size: usize) {
        let now = self.current.fetch_add(size, Relaxed) + size;
        self.peak.fetch_max(now, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

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
