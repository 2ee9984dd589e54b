//! Text-to-speech: an autoregressive synthesizer like Tacotron and XTTS, its files, and its evaluation.
//!
//! A [`Synthesizer`] generates the log-mels of a text in the voice of a reference recording. Each step generates a few
//! frames from the frames before, and predicts whether the text has ended. [`plimsoll_audio::Vocoder`] turns log-mels
//! into sound. [`SpeechPipeline`] does all of it, from text to samples.

mod alignment;
mod config;
mod decoder;
mod dtw;
mod evaluate;
mod generate;
mod pipeline;
mod split;
mod synthesizer;
mod text_encoder;
mod voice_encoder;

pub use alignment::Alignment;
pub use config::{LengthBounds, LossConfig, MelNormalization, SynthesizerConfig, VoiceConfig};
pub use decoder::{Conditioning, MelDecoder, MelDecoderOutput};
pub use dtw::dtw_distance;
pub use evaluate::{SynthesisEvaluation, SynthesizedUtterance, evaluate_synthesis, teacher_forced_losses};
pub use generate::{Ending, GeneratedMels};
pub use pipeline::{SpeechOptions, SpeechPipeline, SpeechSegment, SynthesisError, SynthesizedSpeech, Voice};
pub use split::split_text;
pub use synthesizer::{Synthesizer, TeacherForcedOutput};
pub use text_encoder::{EncodedText, TextEncoder};
pub use voice_encoder::VoiceEncoder;

/// The metadata (`model.json`) of a synthesizer.
pub type SynthesizerMetadata = crate::ModelMetadata<SynthesizerConfig>;
