//! The memory pools of a GPU: what they hold before a run, what they reserve, and what steps take of them.

pub use crate::pool_meter::PoolMeter;
pub use crate::preallocate::preallocate_pages;
pub use crate::step::MeasuredMemory;
