//! Text-to-speech: a synthesiser of the family of Tacotron and XTTS, what belongs to it on disk, and how it is judged.
//!
//! A [`Synthesizer`] says a text in the voice of a reference, a few frames a step, each step knowing those before it; it
//! decides by itself when it is done. What it says are log-mels, which
//! [`plimsoll_audio::Vocoder`] turns into sound.

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

/// What belongs to a synthesiser besides its weights.
pub type SynthesizerMetadata = crate::ModelMetadata<SynthesizerConfig>;
