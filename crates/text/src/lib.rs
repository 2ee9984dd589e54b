//! Converts text to ids for speech models and back, and recognized text to files, times and error rates.
#![doc = include_str!("../README.md")]

mod error;
mod normalize;
mod normalizer;
mod numbers;
mod phonemes;
mod spoken;
pub mod ssml;

mod bpe;
mod characters;
mod encoded;
mod hugging_face;
mod tokenizer;
mod unheard;

pub mod alignment;
pub mod score;
pub mod transcript;

pub use characters::CharTokenizer;
pub use error::TextError;
pub use normalize::{Case, normalize, normalized, without_punctuation};
pub use normalizer::{Normalizer, NormalizerError, Step};
pub use numbers::{Numbers, english_number, numbers_to_words};
pub use phonemes::{PhonemeError, Phonemizer};
pub use spoken::{Language, cardinal, number_words};
pub use tokenizer::{Tokenizer, WhisperFrame};
pub use unheard::{UnheardCharacter, unheard_characters};
