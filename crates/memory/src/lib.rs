//! The memory optimizer: what a training step needs of memory, before the first step and without the card.
//!
//! A model is [traced](trace()) on Burn's recording device, where a step of any size takes milliseconds and no tensor
//! memory. What it would ask of a backend becomes a [`Timeline`] with an owner for every byte and a phase for every
//! moment; [`Life`] puts the steps of a run together, optimizer, validation and checkpoint included. A [`Survey`] of a
//! few traces answers for all batches, and [`plan()`] finds the fastest way to compute each length that stays within a
//! budget on a [`Card`] of the [`catalogue()`], or says what is missing and the cheapest change that would do.
//!
//! Any Burn model can be asked about: it needs a [`Task`](plimsoll_tape::Task), which is its loss on batches of its own
//! type, and a [`Subject`], which builds it and its batches. `examples/transformer.rs` plans Burn's own Transformer
//! encoder.
//!
//! ```
//! use burn::module::Module;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Tensor};
//! use plimsoll_core::{Batch, BatchShape, Choice, SampleId};
//! use plimsoll_memory::{BackendRules, Life, Owner, StepMemory, Subject, trace};
//! use plimsoll_tape::{Pass, StepLoss, Task};
//!
//! /// Rows of 256 zeros: only their number counts here.
//! #[derive(Clone)]
//! struct Rows(Vec<SampleId>);
//!
//! impl Batch for Rows {
//!     fn ids(&self) -> &[SampleId] {
//!         &self.0
//!     }
//!     fn select(&self, places: &[usize]) -> Self {
//!         Self(places.iter().map(|&place| self.0[place]).collect())
//!     }
//! }
//!
//! /// A layer that learns to give back what it is given.
//! #[derive(Module, Debug)]
//! struct Mirror {
//!     layer: Linear,
//! }
//!
//! impl Task for Mirror {
//!     type Batch = Rows;
//!     type Tensors = Tensor<2>;
//!     fn send(rows: &Rows, device: &Device) -> Tensor<2> {
//!         Tensor::zeros([rows.len(), 256], device)
//!     }
//!     fn loss(&self, x: &Tensor<2>, _: &Pass) -> StepLoss {
//!         StepLoss::new((self.layer.forward(x.clone()) - x.clone()).square().sum())
//!     }
//! }
//!
//! struct Mirrors;
//!
//! impl Subject for Mirrors {
//!     type Task = Mirror;
//!     fn init(&self, device: &Device) -> Mirror {
//!         Mirror { layer: LinearConfig::new(256, 256).init(device) }
//!     }
//!     fn batch(&self, shape: BatchShape) -> Rows {
//!         Rows((0..u64::from(shape.utterances)).map(SampleId).collect())
//!     }
//! }
//!
//! let piece = trace(&Mirrors, BatchShape::samples(400), Choice::default(), BackendRules::card())?;
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
