//! Plans the memory of a training run before its first step, and without the GPU on which it will run.
//!
//! A model is [traced](trace()) on a recording device of Burn: a step of any size takes milliseconds and no tensor
//! memory. The rules of a backend turn the recording into a [`Timeline`], in which every byte has an owner and every
//! moment a phase. [`RunMemory`] adds optimizer, validation and checkpoint. A [`MemoryModel`] estimates all batch sizes
//! from a few traces, and [`plan()`] finds the fastest micro-batch of each length that fits a budget, for example the
//! memory of a [`Gpu`] of the [`catalog()`]. If nothing fits, the error has the missing memory and the cheapest change
//! that would help.
//!
//! Any Burn model can be planned. It needs a [`Task`](plimsoll_tape::Task), which is the model's loss on its own batch
//! type, and a [`Traceable`], which builds the model and its batches. `examples/transformer.rs` plans the Transformer
//! encoder of Burn.
//!
#![doc = include_str!("../README.md")]

mod backend;
mod catalog;
mod cost;
mod cube;
mod demand;
mod envelope;
mod flex;
mod heap;
mod html;
mod limit;
mod model;
mod operation_cost;
mod operation_name;
mod operations;
mod page;
mod perfetto;
mod plan;
mod plan_error;
mod pool_run;
mod pools;
mod profile;
mod refusal;
mod run_memory;
mod scalable_trace;
mod search;
mod strategy;
mod timeline;
mod timeline_builder;
mod trace;
mod traceable;
mod traces;

pub use backend::BackendRules;
pub use catalog::{CatalogError, Gpu, PeakRates, catalog, find};
pub use cost::{Cost, Speed};
pub use demand::{Demand, PlanOptions, StateOption};
pub use html::html_page;
pub use limit::MemoryLimit;
pub use model::{MemoryEstimate, MemoryModel};
pub use operation_cost::{OperationCost, operation_costs};
pub use perfetto::perfetto_trace;
pub use plan::{BucketPlan, Plan, fastest_plan, fits_at_all, plan, plan_with};
pub use plan_error::{Change, PlanError, RefusedTensor, Remedy};
pub use refusal::does_not_fit;
pub use run_memory::{RunMemory, StepMemory};
pub use timeline::{Allocation, Owner, Phase, PhaseSpan, Timeline};
pub use trace::{Trace, TraceError, trace, trace_validation};
pub use traceable::{Traceable, Trained};
pub use traces::Traces;
