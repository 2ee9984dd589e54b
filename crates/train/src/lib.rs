//! The training loop: every step a transaction, every run resumable.
//!
//! A [`Trainer`] owns a model (a [`Task`](plimsoll_tape::Task)) and its optimizer, and turns effective batches into
//! steps; a [`Run`] drives it through a source of batches, validates, writes checkpoints and tells an [`Observer`] what
//! happens. Nothing here knows speech, files of audio, or a terminal: a model brings its own type of batch.
//! `examples/classifier.rs` trains a classifier made of Burn's own modules, and `examples/line.rs` shows a whole run with
//! validations and checkpoints.

mod attempt;
mod checkpoint;
mod ema;
mod fault;
mod governor;
mod inference;
mod optimizer;
mod preallocate;
mod progress;
mod replicas;
mod run;
mod schedule;
mod step;
mod weights;

pub use attempt::is_reported_failure;
pub use checkpoint::{
    Checkpoint, CheckpointError, CheckpointSelection, CheckpointStore, Disk, RealDisk, RunState, Snapshot,
};
pub use ema::Ema;
pub use governor::{Governor, GovernorState, PlannedLimit};
pub use inference::{InferenceError, InferenceRunner};
pub use optimizer::{
    AdamWConfig, LionConfig, Optimizer, OptimizerConfig, SgdConfig, StateData, StateError, StateForm, StateTensor,
};
pub use preallocate::preallocate_pages;
pub use progress::{Event, Observer, StepEvent};
pub use replicas::{GpuReplica, Replica, ThreadReplica};
pub use run::{Ending, Limits, Outcome, Run, RunOptions, Score, TrainError, Validate};
pub use schedule::{Plateau, PlateauConfig, Schedule, Shape};
pub use step::{LossScale, MicroBatch, NextBatchHook, StepError, StepReport, Trainer, TrainerConfig, Unfit, fallbacks};
pub use weights::{WeightsError, read_weights, write_weights};
