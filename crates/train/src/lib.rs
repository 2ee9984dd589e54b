//! The training loop: every step a transaction, every run resumable.
//!
//! A [`Trainer`] owns a model (a [`Task`](plimsoll_tape::Task)) and its optimizer, and turns effective batches into
//! steps; a [`Run`] drives it through a source of batches, validates, writes checkpoints and tells an [`Observer`] what
//! happens. Nothing here knows speech, files of audio, or a terminal: a model brings its own type of batch.
//! `examples/classifier.rs` trains a classifier made of Burn's own modules, and `examples/line.rs` shows a whole run with
//! validations and checkpoints.

mod attempt;
mod careful;
mod checkpoint;
mod ema;
mod governor;
mod layout;
mod optimizer;
mod progress;
mod replicas;
mod run;
mod schedule;
mod step;
mod weights;

pub use attempt::is_answer;
pub use careful::{Careful, CarefulError};
pub use checkpoint::{Checkpoint, CheckpointError, CheckpointStore, Disk, Pick, RealDisk, RunState, Snapshot};
pub use ema::Ema;
pub use governor::{Governor, Knowledge, Planned};
pub use layout::lay_out;
pub use optimizer::{
    AdamWConfig, LionConfig, Optimizer, OptimizerConfig, SgdConfig, StateData, StateError, StateForm, StateTensor,
};
pub use progress::{Event, Observer, StepEvent};
pub use replicas::{Cards, Replica, Threads};
pub use run::{Ending, Limits, Outcome, Run, RunOptions, Score, TrainError, Validate};
pub use schedule::{Plateau, PlateauConfig, Schedule, Shape};
pub use step::{Cut, LossScale, Meanwhile, StepError, StepReport, Trainer, TrainerConfig, Unfit, ways};
pub use weights::{WeightsError, read_weights, write_weights};
