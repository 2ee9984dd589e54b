//! The training loop: every step a transaction, every run resumable.
//!
//! A [`Trainer`] owns a model (a [`Task`](plimsoll_tape::Task)) and its optimizer, and turns effective batches into
//! steps; [`run`] drives it through a source of batches, validates, writes checkpoints and tells an [`Observer`] what
//! happens. Nothing here knows speech, files of audio, or a terminal. `examples/line.rs` trains a model of its own.

mod adamw;
mod checkpoint;
mod governor;
mod layout;
mod progress;
mod run;
mod schedule;
mod step;
mod weights;

pub use adamw::{AdamW, AdamWConfig};
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointStore, RunState};
pub use governor::Governor;
pub use layout::lay_out;
pub use progress::{Event, Observer};
pub use run::{Ending, Limits, Outcome, RunOptions, Score, TrainError, run};
pub use schedule::{Schedule, Shape};
pub use step::{StepError, StepReport, Trainer, TrainerConfig};
pub use weights::{WeightsError, read_weights, write_weights};
