//! Speech recognition: a Conformer with CTC and an attention decoder, its searches, its files, and its evaluation.

mod config;
pub mod decode;
mod decoder;
pub(crate) mod evaluate;
mod language;
mod live;
mod long;
mod pending;
mod recognizer;
mod search;
mod spoken;
mod transcriber;
pub(crate) mod windows;

pub use config::{DecoderConfig, EncoderKind, RecognizerConfig};
pub use decoder::{Decoder, EncodedAudio};
pub use evaluate::{EvaluationOptions, RecognitionEvaluation, Transcription, evaluate_recognition, score_recognition};
pub use language::LanguageSearch;
pub use live::{LiveOptions, LiveTranscriber, LiveUpdate};
pub use long::{LongOptions, LongScores, LongTranscriber};
pub use pending::SEGMENT_PAUSE;
pub use recognizer::Recognizer;
pub use search::Search;
pub use spoken::{SpokenUtterance, SpokenWord};
pub use transcriber::{TimedTranscription, Transcriber};

/// The metadata (`model.json`) of a recognizer.
pub type RecognizerMetadata = crate::ModelMetadata<RecognizerConfig>;
