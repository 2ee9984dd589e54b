//! Text-to-speech: synthesizers of two families, their files, and their evaluation.
//!
//! A synthesizer generates the log-mels of a text in the voice of a reference recording. A [`ParallelSynthesizer`] predicts
//! how long each token lasts and generates all frames at once. A [`Synthesizer`] is autoregressive, like Tacotron and
//! XTTS: each step generates a few frames from the frames before, and predicts whether the text has ended.
//! [`plimsoll_audio::Vocoder`] turns log-mels
//! into sound. [`SpeechPipeline`] does all of it, from text to samples.

mod alignment;
mod config;
mod decoder;
mod dtw;
mod evaluate;
mod generate;
mod parallel;
mod pipeline;
mod sound;
mod speak;
mod speech_model;
mod split;
mod synthesizer;
mod text_encoder;
mod voice_encoder;

pub use alignment::Alignment;
pub use config::{LengthBounds, LossConfig, MelNormalization, SynthesizerConfig, VoiceConfig};
pub use decoder::{Conditioning, MelDecoder, MelDecoderOutput};
pub use dtw::dtw_distance;
pub use evaluate::{SynthesisEvaluation, SynthesizedUtterance, evaluate_synthesis, teacher_forced_losses};
pub use generate::{Ending, GeneratedMels, GenerationDetail, GenerationOptions};
pub use parallel::{AlignedOutput, ParallelConfig, ParallelLossConfig, ParallelSynthesizer};
pub use pipeline::{SpeechOptions, SpeechPipeline, SpeechSegment, SynthesisError, SynthesizedSpeech, Voice};
pub use speech_model::{SpeechConfig, SpeechModel, SpeechTask, SpeechText};
pub use split::split_text;
pub use synthesizer::{Synthesizer, TeacherForcedOutput};
pub use text_encoder::{EncodedText, TextEncoder};
pub use voice_encoder::VoiceEncoder;

use crate::ModelKind;

/// Returns whether `kind`, as [`ModelFolder::kind`](crate::ModelFolder::kind) returns it, is a synthesizer of either family.
pub fn is_synthesizer(kind: &str) -> bool {
    [SynthesizerConfig::KIND, ParallelConfig::KIND].contains(&kind)
}

/// The metadata (`model.json`) of an autoregressive synthesizer.
pub type SynthesizerMetadata = crate::ModelMetadata<SynthesizerConfig>;

/// The metadata (`model.json`) of a parallel synthesizer.
pub type ParallelMetadata = crate::ModelMetadata<ParallelConfig>;
