//! Text-to-speech: a synthesiser of the family of Tacotron and XTTS, what belongs to it on disk, and how it is judged.
//!
//! A [`Synthesiser`] says a text in the voice of a reference, a few frames a step, each step knowing those before it; it
//! decides by itself when it is done. What it says are log-mels, which
//! [`plimsoll_audio::Vocoder`] turns into sound.

mod alignment;
mod config;
mod decoder;
mod judge;
mod likeness;
mod narrator;
mod parts;
mod speak;
mod synthesiser;
mod text_encoder;
mod voice;

pub use alignment::Alignment;
pub use config::{LossConfig, Pace, Scale, SynthesiserConfig, VoiceConfig};
pub use decoder::{MelDecoder, Prompt, Said};
pub use judge::{Delivery, Spoke, deliver, losses};
pub use likeness::likeness;
pub use narrator::{Narration, Narrator, Passage, SayError, Voice};
pub use parts::parts;
pub use speak::{Ending, Spoken};
pub use synthesiser::{Followed, Synthesiser};
pub use text_encoder::{EncodedText, TextEncoder};
pub use voice::VoiceEncoder;

/// What belongs to a synthesiser besides its weights.
pub type Bundle = crate::Bundle<SynthesiserConfig>;
