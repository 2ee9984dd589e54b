//! Errors of texts and vocabularies.

use std::io;
use std::path::PathBuf;

/// Largest number of characters that a message quotes of a text or a file.
const MAX_QUOTE: usize = 200;

/// Returns `text`, or its beginning if it is too long for a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

/// Returns `error`, or an error with the beginning of its message if the message quotes too much of a file.
pub(crate) fn short_error(error: serde_json::Error) -> serde_json::Error {
    let message = error.to_string();
    match shortened(&message) {
        short if short == message => error,
        short => serde::de::Error::custom(short),
    }
}

/// Reason why a text or a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A character of a text is not in the vocabulary.
    #[error("the character `{character}` (U+{code:04X}) in \"{}\" is not in the vocabulary", shortened(text), code = u32::from(*character))]
    UnknownCharacter {
        /// Character that is not in the vocabulary.
        character: char,
        /// Text that contains the unknown character.
        text: String,
    },
    /// The phonemes of a text cannot be made.
    #[error(transparent)]
    Phonemes(#[from] crate::phonemes::PhonemeError),
    /// The vocabulary lists a character twice.
    #[error("the vocabulary lists `{0}` twice")]
    DuplicateCharacter(char),
    /// The vocabulary lists a piece twice.
    #[error("the vocabulary lists the piece `{0}` twice")]
    DuplicatePiece(String),
    /// A merge joins pieces, or makes a piece, that the vocabulary does not list.
    #[error("the merge of `{left}` and `{right}` needs a piece that the vocabulary does not list")]
    UnlistedPiece {
        /// Left piece of the merge.
        left: String,
        /// Right piece of the merge.
        right: String,
    },
    /// The requested BPE vocabulary has fewer ids than the texts need for their characters.
    #[error(
        "a BPE vocabulary of {size} ids is too small: the texts have {characters} different characters, so at least {minimum} ids are needed"
    )]
    TooFewIds {
        /// Requested number of ids.
        size: usize,
        /// Number of different characters in the texts, including the space.
        characters: usize,
        /// Number of ids needed for the characters of the texts and the reserved ids.
        minimum: usize,
    },
    /// A vocabulary file contains no known kind of vocabulary, or several kinds.
    #[error("a vocabulary needs exactly one of `characters`, `bpe` and `hugging_face`")]
    NotOneVocabulary,
    /// The `tokenizers` crate cannot read a Hugging Face file. Holds its message.
    #[error("the Hugging Face tokenizer cannot be used: {0}")]
    HuggingFace(String),
    /// A Hugging Face file contains a model other than BPE.
    #[error("the Hugging Face tokenizer has a {0} model; only BPE is supported")]
    NotBpe(&'static str),
    /// The unknown token of a Hugging Face file is not in the vocabulary of the file.
    #[error("the Hugging Face tokenizer names `{0}` as its unknown token, but does not list it")]
    UnknownPieceMissing(String),
    /// A vocabulary file cannot be read or written.
    #[error("cannot use vocabulary file {}", file.display())]
    File {
        /// Path of the vocabulary file.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is too large to be a vocabulary.
    #[error("{} is larger than {} MiB", file.display(), most >> 20)]
    TooLarge {
        /// Path of the file.
        file: PathBuf,
        /// Largest size of a vocabulary file, in bytes.
        most: u64,
    },
    /// A file does not contain a vocabulary.
    #[error("{} is not a vocabulary file", file.display())]
    Json {
        /// Path of the file that was read.
        file: PathBuf,
        /// Error in the JSON or in the vocabulary of the file.
        source: serde_json::Error,
    },
}
