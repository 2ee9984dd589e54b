//! Plain words and seams: what the crates of Plimsoll say to each other.
//!
//! Nothing here knows Burn, a file or a device. A type lives here when two crates that never met must speak of the same
//! thing: an amount of memory, the shape of a batch, a way to run a step.
//!
//! ```
//! use plimsoll_core::{BatchShape, Bytes, Frames};
//!
//! let card: Bytes = "8GiB".parse()?;
//! let batch = BatchShape { utterances: 16, frames: Frames(1200), tokens: 80 };
//! let features = Bytes::of::<f32>(batch.frame_cells() * 80);
//! assert!(features < card);
//! assert_eq!(features.to_string(), "5.86 MiB");
//! # Ok::<(), plimsoll_core::UnitError>(())
//! ```

mod batch;
mod choice;
mod collective;
mod error_chain;
mod grid;
mod key;
mod measure;
mod memory;
mod shape;
mod source;
mod units;

pub use batch::{BatchError, HostBatch, HostSample};
pub use choice::{Choice, Precision, Remat};
pub use collective::{Alone, Collective, CollectiveError};
pub use error_chain::error_chain;
pub use grid::Grid;
pub use key::{Key, SampleId};
pub use measure::{Measure, MeasureUnit};
pub use memory::{CountingAllocator, DeviceMemory, MemoryGate, MemoryMeter, OpenGate, OutOfMemory, ProbeError, Stage};
pub use shape::BatchShape;
pub use source::{BatchSource, Delivered, Position, Skipped, SourceError};
pub use units::{Bytes, Frames, Samples, Seconds, UnitError};
