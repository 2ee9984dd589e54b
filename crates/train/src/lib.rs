//! Training loop for Burn models: steps that survive running out of memory, optimizers, checkpoints, replicas.
#![doc = include_str!("../README.md")]

mod attempt;
mod checkpoint;
mod ema;
mod fault;
mod governor;
mod inference;
mod layer_clock;
mod optimizer;
pub mod planned;
mod pool_meter;
pub mod pools;
mod preallocate;
mod progress;
mod reads;
mod replicas;
mod run;
mod schedule;
mod step;
mod weights;

pub use attempt::is_reported_failure;
pub use checkpoint::{
    Checkpoint, CheckpointError, CheckpointSelection, CheckpointStore, Disk, NotBest, RealDisk, RunState, Snapshot,
};
pub use ema::Ema;
pub use governor::{Governor, GovernorState};
pub use inference::{InferenceError, InferenceRunner};
pub use layer_clock::{LayerClock, LayerTime};
pub use optimizer::{
    AdamWConfig, LionConfig, Optimizer, OptimizerConfig, SgdConfig, StateData, StateError, StateForm, StateTensor,
};
pub use progress::{Event, Observer, StepEvent};
pub use replicas::{GpuReplica, HostReplica, Replica, ThreadReplica};
pub use run::{Cleanup, Ending, Limits, Outcome, Run, RunOptions, Score, TrainError, Validate};
pub use schedule::{Plateau, PlateauConfig, Schedule, Shape};
pub use step::{LossScale, MicroBatch, NextBatchHook, StepError, StepReport, Trainer, TrainerConfig, Unfit, fallbacks};
pub use weights::{WeightsError, read_weights, write_weights};
