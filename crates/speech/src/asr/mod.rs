//! Speech recognition: a Conformer with CTC and an attention decoder, what belongs to it on disk, and how it is judged.

mod config;
pub mod decode;
mod decoder;
mod evaluate;
mod recognizer;
mod search;
mod transcriber;

pub use config::{DecoderConfig, RecognizerConfig};
pub use decoder::{Decoder, EncodedAudio};
pub use evaluate::{EvaluationOptions, RecognitionEvaluation, Transcription, evaluate_recognition};
pub use recognizer::Recognizer;
pub use search::Search;
pub use transcriber::Transcriber;

/// What belongs to a recogniser besides its weights.
pub type RecognizerMetadata = crate::ModelMetadata<RecognizerConfig>;
