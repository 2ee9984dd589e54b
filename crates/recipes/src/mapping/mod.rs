//! The one mapping from a configuration to what is built, planned and trained.
//!
//! Training, planning, `memtest`, `optimize` and `model info` all read the configuration through these functions, so that
//! they cannot disagree.

mod batches;
mod features;
mod model;
mod step;

pub use batches::{batching, corpus_shapes, expected_shapes, utterances_at_length};
pub use features::{augment, features, reference_frames};
pub use model::{ModelPlan, model, recogniser, synthesiser};
pub use step::{budget, choice, first_micro_batch, fixed_micro_batch, optimizer, optimizer_state, state_bits};
