//! Speech recognition ([`asr`]) and speech synthesis ([`tts`]) as Burn models.
#![doc = include_str!("../README.md")]

pub mod asr;
mod check;
mod evaluation_error;
mod metadata;
mod planning;
pub mod score;
#[cfg(test)]
mod testing;
pub mod tts;
pub mod vocoder;
pub mod whisper;

/// Audio files and features, whose types this crate takes.
pub use plimsoll_audio as audio;
/// Language models, which this crate takes.
pub use plimsoll_language as language;
/// Tokenizers, which this crate takes.
pub use plimsoll_text as text;

pub use check::InvalidField;
pub use evaluation_error::EvaluationError;
pub use metadata::{ModelError, ModelFolder, ModelKind, ModelMetadata};
