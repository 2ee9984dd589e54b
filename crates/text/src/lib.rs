//! Converts text to ids for speech models and back.
#![doc = include_str!("../README.md")]

mod error;
mod normalize;
mod numbers;

mod bpe;
mod characters;
mod encoded;
mod hugging_face;
mod tokenizer;

pub use characters::CharTokenizer;
pub use error::TextError;
pub use normalize::{Case, normalize, without_punctuation};
pub use numbers::{Numbers, english_number, numbers_to_words};
pub use tokenizer::Tokenizer;
