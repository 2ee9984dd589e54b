//! The optimizer.

mod adamw;

pub use adamw::{AdamW, AdamWConfig};
