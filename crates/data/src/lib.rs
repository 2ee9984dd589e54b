//! From audio files and transcripts to batches of plain arrays.
//!
//! The way of the data is one line: [`import`] reads whatever layout a corpus has and [`check`] looks whether its audio
//! is there, which together is a [`Manifest`]; [`Manifest::select`] says which can be used and why the others cannot,
//! [`hold_out`] sets some aside, a [`Dataset`] makes features ([`LogMel`](plimsoll_audio::LogMel)) and tokens ([`Tokenizer`](plimsoll_text::Tokenizer)) of them, and a
//! [`Loader`] hands them out in batches that were loaded ahead.
//!
//! Order and randomness follow from the configuration, the seed and a [`Position`](plimsoll_core::Position) of a few
//! numbers, never from the card, the number of threads or their luck. Whatever is left out is counted and named. There
//! is no Burn here.
//!
//! ```
//! use std::{num::NonZeroU32, sync::Arc};
//! use plimsoll_audio::{LogMel, LogMelConfig};
//! use plimsoll_core::{Bytes, Key, Position};
//! use plimsoll_data::*;
//! use plimsoll_text::Tokenizer;
//!
//! // Two seconds of silence, each with its text.
//! let folder = tempfile::tempdir()?;
//! let spec = hound::WavSpec {
//!     channels: 1, sample_rate: 16_000, bits_per_sample: 16, sample_format: hound::SampleFormat::Int,
//! };
//! for name in ["a", "b"] {
//!     let mut wav = hound::WavWriter::create(folder.path().join(format!("{name}.wav")), spec)?;
//!     (0..16_000).try_for_each(|_| wav.write_sample(0i16))?;
//!     wav.finalize()?;
//! }
//! let lines = r#"{"audio_filepath": "a.wav", "text": "देव बरें करूं"}
//!                {"audio_filepath": "b.wav", "text": "good day"}"#;
//! std::fs::write(folder.path().join("manifest.jsonl"), lines)?;
//!
//! let selection = Manifest::read(folder.path())?.select(&Limits::default());
//! let tokenizer = Tokenizer::characters(selection.kept.iter().map(|utterance| &utterance.text));
//! let log_mel = LogMel::new(&LogMelConfig::default())?;
//! let dataset = Dataset::new(selection.kept, log_mel, tokenizer, Some(Augment::default()), Bytes::mib(64))?;
//!
//! let config = LoaderConfig {
//!     batching: BatchingConfig::new(BatchSize::Utterances(NonZeroU32::new(16).unwrap())),
//!     grid: None,
//!     workers: None,
//!     prefetch: None,
//!     unreadable_share: 0.05,
//!     mode: Mode::Train { epochs: Some(1) },
//!     shard: Shard::default(),
//! };
//! for loaded in Loader::start(Arc::new(dataset), &config, Key::new(7), Position::default()) {
//!     let loaded = loaded?;
//!     assert_eq!(loaded.batch.shape().to_string(), "2 x 101 frames x 13 tokens");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod import;
mod utterance;

mod select;

mod check;
mod manifest;

mod long;
mod split;
mod stats;

mod store;

mod augment;
mod batching;
mod dataset;
mod loader;

#[cfg(test)]
mod testing;

pub use augment::{Augment, AugmentError, Noise, SpecAugment};
pub use batching::{BatchSize, BatchingConfig, Epoch, SampleMeta, epoch_batches};
pub use check::{CheckOptions, Checked, Fault, Flaw, Look, Progress, check};
pub use dataset::{Dataset, LoadError};
pub use import::{Entry, Format, ImportError, ImportOptions, Listing, Place, Problem, Trouble, import};
pub use loader::{Loader, LoaderConfig, Mode, Shard};
pub use long::{TooLong, cuts_at_silence};
pub use manifest::{Manifest, ManifestError};
pub use select::{Limits, Reason, Refusal, Selection};
pub use split::{Split, SplitBy, SplitError, hold_out};
pub use stats::{Bin, CorpusStats, Spread};
pub use store::{
    Damage, Store, StoreConfig, StoreCounts, StoreError, StoreKey, StoreNumbers, StoreReport, clear as clear_store,
    survey as survey_store,
};
pub use utterance::Utterance;
