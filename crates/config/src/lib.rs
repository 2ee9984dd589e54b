//! Loads configurations strictly, with the origin of every value and a place for every error.
//!
//! A [`RunConfig`] has four layers, weakest first: the defaults, a file, the environment, the command line. Each layer is
//! read into a list of settings that know their origin. Names are checked against the table of keys ([`SECTIONS`]), and
//! values against the limits of their key. Then the `config` crate merges the layers, and serde reads the result.
//!
//! ```
//! use plimsoll_config::choices::Task;
//! use plimsoll_config::{ConfigArgs, load};
//! use plimsoll_core::Bytes;
//!
//! let args = ConfigArgs { steps: Some("20".into()), ..Default::default() };
//! let loaded = load(&args, std::iter::empty(), &|| Bytes::gib(8))?;
//! assert_eq!((loaded.config.task, loaded.config.training.steps), (Task::Asr, Some(20)));
//! assert_eq!(loaded.provenance.origin("training.steps").to_string(), "--steps");
//! # Ok::<(), plimsoll_config::ConfigError>(())
//! ```
//!
//! To add a key, add it to its section in `schema.rs` or `schema/`: reading, checking, printing and documentation follow.

mod aliases;
mod arguments;
mod bounds;
mod check;
pub mod choices;
mod environment;
mod error;
mod file;
mod foreign;
pub mod invocation;
mod key;
mod keys;
mod kind;
mod load;
mod merge;
mod names;
mod nearest;
mod notes;
mod origin;
mod print;
mod recipe;
mod reference;
mod rules;
mod schema;
mod setting;
mod shipped;
mod sources;
mod tiers;
mod toml_value;
mod variable;

#[cfg(test)]
mod tests;

pub use aliases::{ALIASES, Alias};
pub use arguments::ConfigArgs;
pub use environment::RESERVED_VARIABLES;
pub use error::{ConfigError, ConfigIssue, IssueKind, SyntaxError};
pub use file::built_in_name;
pub use foreign::flag_hint;
pub use key::{Key, Section};
pub use keys::{SECTIONS, keys};
pub use kind::{Interval, Kind};
pub use load::{Loaded, load, load_with_recipe};
pub use nearest::{key as nearest_key, word as nearest_word};
pub use notes::ConfigNote;
pub use origin::{ConfigText, Layer, Provenance, Spans, ValueOrigin};
pub use print::{to_json, to_toml};
pub use recipe::{ChosenValue, CorpusSize, Recipe, RunLength, VoiceFacts};
pub use reference::key_table;
pub use rules::rate_of_part;
pub use schema::{AugmentConfig, DataConfig, DeviceConfig, FeaturesConfig, ModelConfig, RunConfig, TrainingConfig};
pub use shipped::shipped_models;
pub use sources::{ConfigSources, Variable, sources};
pub use tiers::{AUTO_FILE, Tier};
pub use variable::{runs_folder, variable_name};
