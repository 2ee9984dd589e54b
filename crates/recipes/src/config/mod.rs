//! The configuration: what a person wrote, read strictly, with a place for every value and every mistake.
//!
//! Four layers make a [`RunConfig`], weakest first: the defaults of the schema, a file, the environment, the command
//! line. Each layer becomes a list of settings that remember where they stand; names are checked against one table
//! ([`KEYS`]), values against what their key takes; then the `config` crate merges and serde reads.
//!
//! ```
//! use plimsoll_recipes::config::{ConfigArgs, Task, load};
//!
//! let args = ConfigArgs { steps: Some("20".into()), ..Default::default() };
//! let loaded = load(&args, std::iter::empty())?;
//! assert_eq!((loaded.config.task, loaded.config.training.steps), (Task::Asr, Some(20)));
//! assert_eq!(loaded.provenance.origin("training.steps").to_string(), "--steps");
//! # Ok::<(), plimsoll_recipes::config::ConfigError>(())
//! ```
//!
//! To add a key, write its line in `schema.rs`: reading, checking, printing and documentation follow from it.

mod aliases;
mod arguments;
mod check;
mod choices;
mod environment;
mod error;
mod file;
mod key;
mod keys;
mod kind;
mod load;
mod merge;
mod names;
mod nearest;
mod origin;
mod print;
mod reference;
mod rules;
mod schema;
mod setting;
mod sources;
mod tiers;
mod toml_value;
mod variable;

#[cfg(test)]
mod tests;

pub use aliases::{ALIASES, Alias};
pub use arguments::ConfigArgs;
pub use choices::{
    AttentionChoice, BackendChoice, DecoderNormChoice, FeaturePreset, MelLossChoice, NormChoice, NumbersChoice,
    OptimizerChoice, PositionsChoice, PrecisionChoice, RematChoice, Schedule, StateChoice, Task, TokenizerChoice,
    TooLongChoice, UnfitChoice,
};
pub use environment::RESERVED;
pub use error::{ConfigError, Finding, Problem, Syntax};
pub use file::built_in_name;
pub use key::{Key, Section};
pub use keys::{KEYS, keys};
pub use kind::{Interval, Kind};
pub use load::{Loaded, load};
pub use names::Warning;
pub use origin::{ConfigText, Layer, Provenance, Spans, ValueOrigin};
pub use print::{to_json, to_toml};
pub use reference::markdown;
pub use schema::{AugmentConfig, DataConfig, DeviceConfig, FeaturesConfig, ModelConfig, RunConfig, TrainingConfig};
pub use sources::{ConfigSources, Variable, sources};
pub use tiers::{AUTO, Tier};
