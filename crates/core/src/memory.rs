//! Memory probes, meters and limits, and an allocator that implements them for the CPU.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use crate::{Bytes, counted};

/// Probe for the free memory of a device.
///
/// The memory planner uses this trait, so its tests need no GPU.
pub trait DeviceMemory {
    /// Returns the memory that is free now, after all existing allocations.
    ///
    /// # Errors
    /// If the driver or the operating system does not report the free memory.
    fn free(&self) -> Result<Bytes, ProbeError>;
}

/// Meter of the memory that this process uses on its training device.
///
/// The trainer reads the meter around each step. [`CountingAllocator`] implements this trait for the CPU; on a GPU the
/// memory pools of the backend implement it.
pub trait MemoryMeter: Send + Sync {
    /// Returns the memory in use now.
    fn current(&self) -> Bytes;
    /// Returns the highest memory in use since the last [`reset_peak`](Self::reset_peak).
    fn peak(&self) -> Bytes;
    /// Sets the peak to the memory in use now.
    fn reset_peak(&self);
    /// Returns what the memory pools of a GPU hold now; `None` where memory is not in pools.
    fn pools(&self) -> Option<PoolMemory> {
        None
    }
}

/// Memory in the pools of a GPU, and how pages divide it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolMemory {
    /// Memory that the pools have taken from the GPU.
    pub reserved_bytes: Bytes,
    /// Part of it that tensors use.
    pub in_use_bytes: Bytes,
    /// Pages by size, in the order in which the backend asks the pools.
    pub pages: Vec<PoolPages>,
}

/// Pages of one size in the memory pools of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolPages {
    /// Size of each page.
    pub page_bytes: Bytes,
    /// Number of pages now.
    pub count: u64,
    /// The most pages at any time.
    pub most: u64,
    /// The largest tensor that was on one of these pages.
    pub largest_bytes: Bytes,
}

impl PoolPages {
    /// Returns the memory of all pages now.
    pub fn held(&self) -> Bytes {
        Bytes(self.page_bytes.0.saturating_mul(self.count))
    }
}

impl PoolMemory {
    /// Returns the reserved memory that is on no page: tensors with pages of their own, such as lasting ones.
    pub fn outside_pages(&self) -> Bytes {
        self.pages.iter().fold(self.reserved_bytes, |left, pages| left.saturating_sub(pages.held()))
    }
}

impl fmt::Display for PoolMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reserved, {} in use", self.reserved_bytes, self.in_use_bytes)?;
        for pages in self.pages.iter().filter(|pages| pages.most > 0) {
            write!(f, "; {} of {}", counted(pages.count as usize, "page"), pages.page_bytes)?;
        }
        let outside = self.outside_pages();
        if outside.0 > 0 { write!(f, "; {outside} outside of pages") } else { Ok(()) }
    }
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
    fn pools(&self) -> Option<PoolMemory> {
        (**self).pools()
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
    fn pools(&self) -> Option<PoolMemory> {
        (**self).pools()
    }
}

/// Phase of a run in which memory can run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Forward pass of a micro-batch.
    Forward,
    /// Backward pass of a micro-batch.
    Backward,
    /// Addition of the gradients of two micro-batches.
    Accumulate,
    /// Computation of the norm of the whole gradient.
    Norm,
    /// Update of the parameters and of the optimizer state.
    Update,
    /// Validation of the model.
    Validation,
    /// Copy of the run's state for a checkpoint.
    Checkpoint,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// Error for exhausted memory. One type for all sources: an error of the device, a panic of the backend, or an exceeded
/// budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("out of memory in the {stage}: {reason}")]
pub struct OutOfMemory {
    /// Phase in which memory ran out.
    pub stage: Stage,
    /// Message of the device or of the budget.
    pub reason: String,
}

/// Reports exhausted memory before the device or the operating system does.
///
/// The trainer calls [`check`](Self::check) at points from which it can retry. On the CPU the operating system kills a
/// process without memory, so [`CountingAllocator`] reports that its budget was exceeded. On a GPU operations fail when
/// the memory of the whole device runs out; [`PoolGate`](crate::PoolGate) reports that a smaller budget was exceeded.
/// Tests use a gate to simulate exhausted memory at any point.
pub trait MemoryGate: Send + Sync {
    /// Checks whether memory ran out in the phase `stage`, which has just ended.
    ///
    /// # Errors
    /// If memory ran out since the last call.
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory>;

    /// Checks like [`check`](Self::check) after a phase that computed only what was computed before, with enough memory. The
    /// default calls `check`; a gate whose reading takes time need not read again.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    fn check_again(&self, stage: Stage) -> Result<(), OutOfMemory> {
        self.check(stage)
    }

    /// Called when the trainer has returned unused memory to the device after a failure, before it tries again. The
    /// default does nothing.
    fn cleaned_up(&self) {}
}

/// Gate that never reports exhausted memory: for a device without a budget, whose operations fail when memory runs out.
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
    fn check_again(&self, stage: Stage) -> Result<(), OutOfMemory> {
        (**self).check_again(stage)
    }
    fn cleaned_up(&self) {
        (**self).cleaned_up();
    }
}

impl<G: MemoryGate + ?Sized> MemoryGate for &G {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        (**self).check(stage)
    }
    fn check_again(&self, stage: Stage) -> Result<(), OutOfMemory> {
        (**self).check_again(stage)
    }
    fn cleaned_up(&self) {
        (**self).cleaned_up();
    }
}

/// Error of a memory probe: the free memory of a device is unknown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("cannot read the memory of {device}: {reason}")]
pub struct ProbeError {
    /// Name of the device.
    pub device: String,
    /// Message of the driver or of the operating system.
    pub reason: String,
}

/// System allocator that counts the allocated bytes.
///
/// A program declares it as its `#[global_allocator]` and reads it as a [`MemoryMeter`]. With a
/// [budget](Self::set_budget) it is a [`MemoryGate`] as well: an allocation above the budget still succeeds, because a
/// failure would end the process, but the gate reports that a device with that much memory would have failed.
///
/// Each thread counts in a place of its own, and adds what it counted to the whole when that reaches 4 KiB: one counter for
/// all threads took a quarter of the time of a memory plan
/// (docs/log/memory-planning.md, "One counter of memory for all threads"). [`current`](MemoryMeter::current) is exact;
/// the peak and the budget are up to 4 KiB off for each thread that is in the middle of small allocations.
#[derive(Debug)]
pub struct CountingAllocator {
    /// Bytes that were added up. May be below zero while one thread frees what another has allocated.
    current: AtomicIsize,
    peak: AtomicUsize,
    budget: AtomicUsize,
    /// Highest number of bytes in use since the last `take_overrun`, if it exceeded the budget; 0 otherwise.
    over: AtomicUsize,
    /// Bytes that threads have counted and not yet added to `current`.
    pending: [PendingBytes; PLACES],
}

/// Number of places where threads count. More threads share them.
const PLACES: usize = 32;
/// Bytes from which on a thread adds what it counted to the whole.
const WHOLE: isize = 4096;

/// A counter on a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct PendingBytes(AtomicIsize);

thread_local! {
    /// Place where this thread counts; `usize::MAX` before its first allocation.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the place where this thread counts.
fn place() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // A cell without a destructor needs no allocation, and exists as long as its thread.
    PLACE.with(|place| {
        if place.get() == usize::MAX {
            place.set(NEXT.fetch_add(1, Relaxed) % PLACES);
        }
        place.get()
    })
}

impl CountingAllocator {
    /// Creates an allocator with all counters at zero and no budget.
    pub const fn new() -> Self {
        let (current, peak, over) = (AtomicIsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let pending = [const { PendingBytes(AtomicIsize::new(0)) }; PLACES];
        Self { current, peak, budget: AtomicUsize::new(usize::MAX), over, pending }
    }

    /// Sets the memory that may be in use at once; `None` removes the limit. Clears an earlier overrun.
    pub fn set_budget(&self, budget: Option<Bytes>) {
        let bytes = budget.map_or(usize::MAX, |bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX));
        self.budget.store(bytes, Relaxed);
        self.over.store(0, Relaxed);
    }

    /// Returns the highest memory in use since the last call if it exceeded the budget, else `None`. Then starts anew.
    pub fn take_overrun(&self) -> Option<Bytes> {
        match self.over.swap(0, Relaxed) {
            0 => None,
            most => Some(Bytes(most as u64)),
        }
    }

    /// Counts a change of the bytes in use.
    fn count(&self, change: isize) {
        let pending = &self.pending[place()].0;
        if (pending.fetch_add(change, Relaxed) + change).abs() < WHOLE {
            return;
        }
        let counted = pending.swap(0, Relaxed);
        let now = usize::try_from(self.current.fetch_add(counted, Relaxed) + counted).unwrap_or(0);
        if counted > 0 {
            self.peak.fetch_max(now, Relaxed);
            if now > self.budget.load(Relaxed) {
                self.over.fetch_max(now, Relaxed);
            }
        }
    }

    fn in_use(&self) -> usize {
        let pending: isize = self.pending.iter().map(|bytes| bytes.0.load(Relaxed)).sum();
        usize::try_from(self.current.load(Relaxed) + pending).unwrap_or(0)
    }
}

impl Default for CountingAllocator {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: each call goes to the system allocator unchanged; counting touches atomics only.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            self.count(layout.size() as isize);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let memory = unsafe { System.alloc_zeroed(layout) };
        if !memory.is_null() {
            self.count(layout.size() as isize);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.count(-(layout.size() as isize));
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let moved = unsafe { System.realloc(memory, layout, size) };
        if !moved.is_null() {
            // Grow first: while the system copies, both blocks may be held.
            self.count(size as isize);
            self.count(-(layout.size() as isize));
        }
        moved
    }
}

impl MemoryMeter for CountingAllocator {
    fn current(&self) -> Bytes {
        Bytes(self.in_use() as u64)
    }

    fn peak(&self) -> Bytes {
        Bytes(self.peak.load(Relaxed).max(self.in_use()) as u64)
    }

    fn reset_peak(&self) {
        self.peak.store(self.in_use(), Relaxed);
    }
}

impl MemoryGate for CountingAllocator {
    fn check(&self, stage: Stage) -> Result<(), OutOfMemory> {
        let Some(most) = self.take_overrun() else { return Ok(()) };
        let budget = Bytes(self.budget.load(Relaxed) as u64);
        Err(OutOfMemory { stage, reason: format!("{most} in use, and the budget is {budget}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_described_by_their_pages() {
        let page = |size, count| PoolPages { page_bytes: Bytes::mib(size), count, most: 3, largest_bytes: Bytes(9) };
        let pages = vec![page(8, 1), page(30, 2), PoolPages::default()];
        let memory = PoolMemory { reserved_bytes: Bytes::mib(70), in_use_bytes: Bytes::mib(61), pages };
        assert_eq!(
            memory.to_string(),
            "70 MiB reserved, 61 MiB in use; 1 page of 8 MiB; 2 pages of 30 MiB; 2 MiB outside of pages"
        );
        // A record may be damaged.
        let damaged = PoolPages { page_bytes: Bytes(u64::MAX), count: u64::MAX, ..PoolPages::default() };
        assert_eq!(PoolMemory { pages: vec![damaged], ..memory }.outside_pages(), Bytes(0));
    }

    #[test]
    fn exceeded_budget_is_reported_once() {
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
    fn peak_stays_until_reset() {
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

    #[test]
    fn threads_that_free_what_others_allocated_count_every_byte() {
        let counter = CountingAllocator::new();
        let layouts = |thread: usize| (1..200).map(move |n| Layout::from_size_align(n * (thread + 7), 8).unwrap());
        for round in 0..3 {
            let made: Vec<Vec<usize>> = std::thread::scope(|scope| {
                let make = |thread| layouts(thread).map(|layout| unsafe { counter.alloc(layout) } as usize).collect();
                let threads: Vec<_> = (0..50).map(|thread| scope.spawn(move || make(thread))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let bytes: usize = (0..50).flat_map(layouts).map(|layout| layout.size()).sum();
            assert_eq!(counter.current(), Bytes(bytes as u64), "round {round}");
            assert!(counter.peak().0 as f64 > 0.9 * bytes as f64);
            std::thread::scope(|scope| {
                for (thread, blocks) in made.into_iter().enumerate() {
                    let counter = &counter;
                    scope.spawn(move || {
                        for (block, layout) in blocks.into_iter().zip(layouts(thread)) {
                            unsafe { counter.dealloc(block as *mut u8, layout) };
                        }
                    });
                }
            });
            assert_eq!(counter.current(), Bytes(0), "round {round}");
        }
    }
}
