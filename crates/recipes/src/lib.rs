//! Everything that a program needs to plan, train and use speech models from a configuration, without a command line.
//!
//! A configuration is loaded ([`config::load`]), planned ([`training::PlannedRun`]) and trained
//! ([`training::RunContext::train`]); [`demand::DemandBuilder`] asks whether it would fit on a GPU that is not here, and
//! [`reader::Reader`] transcribes with the result. The command `plimsoll` is one program on top of this crate.
//!
//! ```
//! use plimsoll_recipes::config::{ConfigArgs, load};
//! use plimsoll_recipes::demand::DemandBuilder;
//! use plimsoll_recipes::target::targets;
//!
//! let args = ConfigArgs { d_model: Some("144".into()), ..ConfigArgs::default() };
//! let config = load(&args, std::iter::empty())?.config;
//! let demand = DemandBuilder::from_config(config)?;
//! let gpu = &targets(&["T4".to_string()])?[0];
//! assert_eq!(demand.as_written(gpu).buckets.len(), 5);
//! # Ok::<(), plimsoll_recipes::Failure>(())
//! ```

pub mod config;
pub mod corpus;
pub mod data;
pub mod demand;
pub mod device;
mod error;
pub mod mapping;
pub mod memory;
pub mod memory_plan;
pub mod plan;
pub mod reader;
pub mod reporter;
pub mod resolve;
pub mod target;
pub mod texts;
pub mod training;

pub use error::{Failure, FailureExt, FailureKind};
