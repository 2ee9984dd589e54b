//! Plans, trains and uses speech models from a configuration, without a command line.
//!
#![doc = include_str!("../README.md")]

mod beginning;
pub mod corpus;
pub mod cuda_path;
pub mod cutting;
pub mod data;
pub mod demand;
pub mod device;
pub mod earlier;
mod error;
pub mod families;
mod features;
pub mod filling;
mod fingerprint;
pub mod language;
pub mod listener;
pub mod loading;
mod machine;
pub mod mapping;
mod memory;
pub mod memory_plan;
mod opening;
mod parameters;
pub mod plan;
mod process_memory;
pub mod processes;
pub mod reader;
mod recipe;
pub mod reporter;
mod resolve;
mod run_names;
pub mod target;
pub mod texts;
mod trained;
pub mod training;
mod voice_facts;
mod voice_vocoder;

pub use beginning::{Begun, base_tokenizer};
pub use error::{Failure, FailureExt, FailureKind};
pub use features::features;
pub use recipe::{load, load_rules, load_run};
pub use trained::trained_parts;
pub use voice_vocoder::{vocoder_name, vocoder_settings, vocoder_share};
