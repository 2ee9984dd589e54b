//! The memory that a device gives to a run.

use plimsoll_core::Bytes;

/// Memory that a run may use on a device: in all, and for one tensor.
///
/// ```
/// use plimsoll_core::Bytes;
/// use plimsoll_memory::MemoryLimit;
///
/// assert_eq!(MemoryLimit::from(Bytes::gib(8)).allocation, Bytes(u64::MAX));
/// assert_eq!(MemoryLimit::on_cuda(Bytes::gib(7), Bytes::gib(8)).allocation, Bytes::gib(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Memory for the whole run.
    pub budget: Bytes,
    /// Memory for one allocation. A device may have room for a tensor and refuse it all the same.
    pub allocation: Bytes,
}

impl MemoryLimit {
    /// Returns the limit of `budget` on a CUDA GPU with `total` memory. CubeCL refuses allocations of more than a quarter of
    /// the memory.
    pub fn on_cuda(budget: Bytes, total: Bytes) -> Self {
        Self { budget, allocation: Bytes(total.0 / 4) }
    }
}

impl From<Bytes> for MemoryLimit {
    /// Returns the limit of a budget that one allocation may use up.
    fn from(budget: Bytes) -> Self {
        Self { budget, allocation: Bytes(u64::MAX) }
    }
}
