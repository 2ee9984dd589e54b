//! Text as numbers: normalization, numbers in words, and tokenizers of characters or of pieces of words, in any script.
//!
//! ```
//! use plimsoll_text::{Case, Tokenizer, normalise};
//!
//! let texts = ["good day", "good morning"].map(|text| normalise(text, Case::Lower));
//! let tokenizer = Tokenizer::characters(&texts);
//! let ids = tokenizer.encode("good mood")?;
//! assert_eq!(tokenizer.decode(&ids), "good mood");
//! # Ok::<(), plimsoll_text::TextError>(())
//! ```

mod bpe;
mod characters;
mod encoded;
mod error;
mod hugging_face;
mod normalize;
mod numbers;
mod spoken;
mod tokenizer;

pub use characters::CharTokenizer;
pub use error::TextError;
pub use normalize::{Case, normalise};
pub use numbers::{Numbers, english_number, say_numbers};
pub use tokenizer::Tokenizer;
