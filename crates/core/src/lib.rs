//! Shared types of the Plimsoll crates: units, batches, keys, execution choices, and the traits between crates.
#![doc = include_str!("../README.md")]

mod batch;
mod choice;
mod collective;
mod counted;
mod error_chain;
mod files;
mod grid;
mod key;
mod measure;
mod memory;
mod pool_gate;
mod record;
mod shape;
mod source;
pub mod timing;
pub mod units;
pub mod writes;

pub use batch::{BatchError, HostBatch, HostSample};
pub use choice::{Choice, Precision, Remat, StateForm};
pub use collective::{Collective, CollectiveError, SingleReplica};
pub use counted::counted;
pub use error_chain::error_chain;
pub use files::{
    Draft, open_regular_file, open_text_file, read_regular_file, read_text_file, regular_file_metadata, remove_drafts,
    replace_file,
};
pub use grid::Grid;
pub use key::{Key, SampleId};
pub use measure::{Measure, MeasureUnit};
pub use memory::{
    CountingAllocator, DeviceMemory, MemoryGate, MemoryMeter, OpenGate, OutOfMemory, PoolMemory, PoolPages, ProbeError,
    Stage,
};
pub use pool_gate::PoolGate;
pub use record::{EndKind, Event, MicroBatch, PlanHeader, Record, SCHEMA_VERSION, StepEvent, TimeOwner, TimeShares};
pub use shape::BatchShape;
pub use source::{Batch, BatchList, BatchSource, DeliveredBatch, Position, Skipped, SourceError};
pub use units::{Bytes, Frames, Samples, Seconds};
