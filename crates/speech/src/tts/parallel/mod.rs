//! The parallel family: durations by monotonic alignment search, all frames at once.

mod config;
mod durations;
mod generate;
mod model;
#[cfg(test)]
mod tests;

pub use config::{ParallelConfig, ParallelLossConfig};
pub use durations::Durations;
pub use model::{AlignedOutput, ParallelSynthesizer};
