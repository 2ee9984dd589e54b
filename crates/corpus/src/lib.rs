//! Makes synthetic speech with its texts, to train and test speech models without a download.
#![doc = include_str!("../README.md")]

// From the word to the waveform.
mod contour;
mod filter;
mod glottis;
mod lexicon;
mod phone;
mod synthesizer;
mod targets;
mod voice;

// From the waveform to the corpus.
mod engine;
mod error;
mod espeak;
mod make;
mod noise;
mod random;
mod recording;
mod room;
mod vocabulary;

#[cfg(test)]
mod baseline;
#[cfg(test)]
mod tests;

/// The crate `plimsoll-audio`, re-exported so that callers can write the generated speech to audio files.
pub use plimsoll_audio as audio;

pub use error::CorpusError;
pub use lexicon::{Lexicon, Word};
pub use make::{
    CorpusOptions, CorpusReport, Engine, ListedUtterance, SpokenWord, list_corpus, make_corpus, word_times,
    write_word_times,
};
pub use synthesizer::{SAMPLE_RATE, SynthesizedSpeech, synthesize};
pub use voice::Voice;
