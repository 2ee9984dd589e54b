//! The two tasks of Plimsoll, where layers, data and the `Task` seam meet in a model: recognition ([`asr`]) and
//! synthesis ([`tts`]).
//!
//! ```
//! use plimsoll_speech::score::ErrorCounts;
//!
//! let counts = ErrorCounts::words("the cat sat", "the hat sat down");
//! assert_eq!((counts.substitutions, counts.insertions, counts.rate()), (1, 1, 2.0 / 3.0));
//! ```

pub mod asr;
mod evaluation_error;
mod metadata;
mod planning;
pub mod score;
#[cfg(test)]
mod testing;
pub mod tts;

pub use evaluation_error::EvaluationError;
pub use metadata::{ModelError, ModelFolder, ModelKind, ModelMetadata};
