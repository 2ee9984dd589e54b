//! The memory optimizer: what a training step needs of memory, before the first step and without the card.
//!
//! A model is [traced](trace()) on Burn's recording device, where a step of any size takes milliseconds and no tensor
//! memory. What it would ask of a backend becomes a [`Timeline`] with an owner for every byte and a phase for every
//! moment; [`Life`] puts the steps of a run together, optimizer, validation and checkpoint included. A [`Survey`] of a
//! few traces answers for all batches, and [`plan()`] finds the fastest way to compute each length that stays within a
//! budget on a [`Card`] of the [`catalogue()`], or says what is missing and the cheapest change that would do.
//!
//! Any Burn model can be asked about: it needs a [`Task`](plimsoll_tape::Task), which is its loss, and a [`Subject`],
//! which builds it and its batches.
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::Device;
//! use plimsoll_core::{BatchShape, Choice, Frames, Grid, HostBatch, HostSample, SampleId};
//! use plimsoll_memory::{BackendRules, Life, Owner, StepMemory, Subject, trace};
//! use plimsoll_tape::{Pass, StepLoss, Task, TensorBatch};
//!
//! /// A layer that learns to give back what it is given.
//! #[derive(Module, Debug)]
//! struct Mirror {
//!     layer: Linear,
//! }
//!
//! impl Task for Mirror {
//!     fn weight(&self, batch: &HostBatch) -> f64 {
//!         batch.shape().frame_cells() as f64
//!     }
//!     fn loss(&self, batch: &TensorBatch, pass: &Pass) -> StepLoss {
//!         let x = batch.features.clone();
//!         StepLoss::of((pass.dense(&self.layer, x.clone()) - x).square().sum())
//!     }
//! }
//!
//! struct Mirrors {
//!     width: usize,
//! }
//!
//! impl Subject for Mirrors {
//!     type Task = Mirror;
//!     fn init(&self, device: &Device) -> Mirror {
//!         Mirror { layer: LinearConfig::new(self.width, self.width).init(device) }
//!     }
//!     fn batch(&self, shape: BatchShape) -> HostBatch {
//!         let features = vec![0.0; shape.frames.0 as usize * self.width];
//!         let sample = |place| HostSample {
//!             id: SampleId(place),
//!             name: place.to_string(),
//!             features: features.clone(),
//!             tokens: vec![0; shape.tokens as usize],
//!             reference: Vec::new(),
//!         };
//!         let samples: Vec<HostSample> = (0..u64::from(shape.utterances)).map(sample).collect();
//!         HostBatch::collate(&samples, self.width, &Grid::default()).expect("whole frames")
//!     }
//! }
//!
//! let shape = BatchShape { utterances: 4, frames: Frames(100), tokens: 1 };
//! let piece = trace(&Mirrors { width: 256 }, shape, Choice::default(), BackendRules::card())?;
//! let life = Life::of(&piece, None, StepMemory::default());
//! // AdamW keeps two numbers for each weight.
//! let owners = life.timeline.owners_at_peak();
//! assert!(owners.iter().any(|&(owner, bytes)| owner == Owner::Optimizer && bytes.0 == 2 * 4 * (256 * 256 + 256)));
//! # Ok::<(), plimsoll_memory::TraceError>(())
//! ```

mod backend;
mod catalogue;
mod cost;
mod cube;
mod curve;
mod flex;
mod heap;
mod life;
mod names;
mod page;
mod pages;
mod perfetto;
mod plan;
mod subject;
mod survey;
mod timeline;
mod trace;

pub use backend::BackendRules;
pub use catalogue::{Card, CatalogueError, Peak, catalogue, find};
pub use cost::{Cost, Speed};
pub use life::{Life, StepMemory};
pub use page::page;
pub use perfetto::perfetto;
pub use plan::{BucketPlan, Change, Demand, Plan, PlanError, plan};
pub use subject::Subject;
pub use survey::{Survey, Weighed};
pub use timeline::{Allocation, Owner, Phase, Stretch, Timeline};
pub use trace::{Trace, TraceError, trace, trace_validation};
