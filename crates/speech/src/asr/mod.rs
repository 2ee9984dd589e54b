//! Speech recognition: a Conformer with CTC and an attention decoder, what belongs to it on disk, and how it is judged.

mod config;
pub mod decode;
mod decoder;
mod evaluate;
mod recogniser;
mod search;
mod transcriber;

pub use config::{DecoderConfig, RecogniserConfig};
pub use decoder::{Decoder, Encoded};
pub use evaluate::{Evaluation, Heard, evaluate};
pub use recogniser::Recogniser;
pub use search::Search;
pub use transcriber::Transcriber;

/// What belongs to a recogniser besides its weights.
pub type Bundle = crate::Bundle<RecogniserConfig>;
