//! N-gram language models for the search of a speech recognizer.
#![doc = include_str!("../README.md")]

mod error;
mod files;

mod bytes;
mod ngrams;
mod state;
mod vocabulary;

mod complete;
mod layout;
mod quantize;
mod table;

mod model;

mod arpa;
mod kenlm;
mod open;
mod train;

mod decode;

pub use decode::{
    CtcHypothesis, FusionOptions, FusionState, Hotwords, LanguageScorer, Lexicon, TimedWord, TokenText, fused_beam,
    fused_beam_part,
};
pub use error::LanguageError;
pub use model::{NgramModel, Prediction, SPACE, Unit};
pub use quantize::Quantization;
pub use state::{ORDER_MAX, State};
pub use train::{TrainOptions, TrainProgress, TrainReport, train, train_with};
pub use vocabulary::UNKNOWN;
