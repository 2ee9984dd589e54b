//! Maps a configuration to batches, steps and the settings that a memory plan may choose from.
//!
//! Training, planning, `memtest`, `optimize` and `model info` all read the configuration through these functions, so that
//! they always agree.

mod batches;
mod options;
mod step;

pub use batches::{batching, corpus_shapes, expected_shapes, utterances_at_length};
pub use options::{DeviceTraits, as_written, at_best, fixed, remat_word, remedies};
pub use step::{budget, choice, first_micro_batch, lanes, optimizer, optimizer_state, state_bits};
