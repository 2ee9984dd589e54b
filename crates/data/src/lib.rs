//! Speech corpora for training: import, checks, features, and batches that are loaded ahead.
//!
#![doc = include_str!("../README.md")]

pub mod dropped;
mod issue;
mod known_file;
mod utterance;

mod table;

mod columns;

mod arrow;
mod parquet;

pub mod utterances;

mod import;

mod select;

mod audio_root;
mod check;
mod manifest;
pub mod unpack;

mod fingerprint;
pub mod long;
mod split;
mod stats;

pub mod pack;

pub mod store;

mod audio_identity;
mod augment;
mod batching;
mod dataset;
mod loader;

#[cfg(test)]
mod order_tests;
#[cfg(test)]
mod testing;

/// Audio files and features, whose types this crate takes.
pub use plimsoll_audio as audio;
/// Tokenizers, which this crate takes.
pub use plimsoll_text as text;

pub use audio_root::suggest_audio_root;
pub use augment::{Augment, AugmentError, Noise, SpecAugment};
pub use batching::{BATCHING_VERSION, BatchSize, BatchingConfig, Epoch, SampleMeta, epoch_batches};
pub use check::{CheckDepth, CheckOptions, Checked, Progress, check};
pub use dataset::{Dataset, LoadError};
pub use fingerprint::CorpusFingerprint;
pub use import::{Entry, Format, ImportError, ImportOptions, ImportWatch, Listing, import};
pub use issue::{Issue, IssueKind, SourceLocation};
pub use loader::{Loader, LoaderConfig, Mode, Shard};
pub use manifest::{Manifest, ManifestError};
pub use select::{Limits, Selection};
pub use split::{Split, SplitBy, SplitError, hold_out};
pub use stats::{Bin, CorpusStats, Spread};
pub use utterance::Utterance;
