//! Whisper: an encoder of sound and a decoder of text, both of Transformer blocks, with the weights that OpenAI published or
//! others trained.
//!
//! A model comes as a folder of Hugging Face or as a run or an export of Plimsoll; [`read_metadata`] and [`weights`] read each. Its tokens
//! are those of its `tokenizer.json`, behind the ids that a [`Tokenizer`](plimsoll_text::Tokenizer) reserves.

mod config;
mod evaluate;
mod generate;
mod hugging_face;
mod model;
mod names;
mod times;
mod transcriber;

pub use config::WhisperConfig;
pub use evaluate::evaluate_whisper;
pub use generate::Generation;
pub use hugging_face::{GENERATION_CONFIG, read_metadata, weights, write_hugging_face};
pub use model::Whisper;
pub use transcriber::{LongWhisper, WhisperTranscriber};

/// The metadata (`model.json`) of a Whisper model.
pub type WhisperMetadata = crate::ModelMetadata<WhisperConfig>;
