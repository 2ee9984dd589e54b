//! The parallel family: durations by monotonic alignment search, all frames at once.

mod config;
mod durations;
mod generate;
mod model;
mod pitch;
mod prosody;
#[cfg(test)]
mod tests;
mod tokens;
mod voice_links;

pub use config::{ParallelConfig, ParallelLossConfig};
pub use model::{AlignedOutput, ParallelSynthesizer};
