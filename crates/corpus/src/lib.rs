//! The built-in corpus: speech made here, with its texts, so that a model can be trained where nothing can be fetched.
//!
//! A corpus is a folder with `wavs/`, an LJSpeech-style `metadata.csv` and a NeMo-style `manifest.jsonl`. Its speech
//! comes from a formant synthesiser with a new voice for every speaker, or from espeak-ng where that is installed. The
//! words stay the same whatever the seed; voices, sentences, rooms and noise change with it.
//!
//! The chapter reads from the word to the wave: a `lexicon` of `phone`s, the `voice` that says them, a `score` of
//! targets, the `contour` that slides between them, and the `synthesiser`, which sends a `glottis` through `filter`s.
//! Then a `recording` puts it into a `room` with `noise`, and `make` writes the files.

mod draw;
mod error;
mod espeak;
mod make;
mod noise;
mod recording;
mod room;
mod talker;

mod contour;
mod filter;
mod glottis;
mod lexicon;
mod phone;
mod score;
mod synthesiser;
mod vocabulary;
mod voice;

#[cfg(test)]
mod baseline;
#[cfg(test)]
mod tests;

pub use error::CorpusError;
pub use lexicon::{Lexicon, Word};
pub use make::{CorpusOptions, CorpusReport, Engine, make};
pub use synthesiser::{SAMPLE_RATE, Spoken, synthesise};
pub use voice::Voice;
