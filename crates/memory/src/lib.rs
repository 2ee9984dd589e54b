//! The memory optimizer.
