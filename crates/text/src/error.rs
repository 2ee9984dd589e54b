//! Why a text or a vocabulary cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a text or a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A letter that the vocabulary does not know.
    #[error("the letter `{letter}` (U+{code:04X}) in \"{text}\" is not in the vocabulary", code = u32::from(*letter))]
    UnknownLetter {
        /// The letter.
        letter: char,
        /// The text it stands in.
        text: String,
    },
    /// A character is listed twice.
    #[error("the vocabulary lists `{0}` twice")]
    Twice(char),
    /// A piece is listed twice.
    #[error("the vocabulary lists the piece `{0}` twice")]
    PieceTwice(String),
    /// A merge is of pieces, or makes a piece, that is not listed.
    #[error("the merge of `{left}` and `{right}` needs a piece that the vocabulary does not list")]
    Merge {
        /// The piece on the left.
        left: String,
        /// The piece on the right.
        right: String,
    },
    /// More letters than ids.
    #[error("{size} ids are too few for pieces: the texts have {letters} letters, so it takes {least} or more")]
    TooFewIds {
        /// The ids asked for.
        size: usize,
        /// The different letters in the texts, the space among them.
        letters: usize,
        /// The ids needed for the letters alone, with the reserved ones.
        least: usize,
    },
    /// A vocabulary of no kind, or of several.
    #[error("a vocabulary has `characters`, `bpe` or `hugging_face`, and one of them")]
    NotOneAlphabet,
    /// A Hugging Face file that the `tokenizers` crate does not understand.
    #[error("the Hugging Face tokenizer cannot be used: {0}")]
    HuggingFace(String),
    /// A Hugging Face file of another kind.
    #[error("the Hugging Face tokenizer holds a {0} model; only BPE can be used")]
    NotBpe(&'static str),
    /// A Hugging Face file that names a piece for the unknown and does not list it.
    #[error("the Hugging Face tokenizer has `{0}` for what is unknown, but does not list it")]
    UnknownPieceMissing(String),
    /// The file cannot be read or written.
    #[error("cannot use vocabulary file {}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file holds no vocabulary.
    #[error("{} is not a vocabulary file", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}
