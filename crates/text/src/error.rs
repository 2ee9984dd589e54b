//! Errors of texts and vocabularies.

use std::io;
use std::path::PathBuf;

/// Why a text or a vocabulary cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A character that is not in the vocabulary.
    #[error("the character `{character}` (U+{code:04X}) in \"{text}\" is not in the vocabulary", code = u32::from(*character))]
    UnknownCharacter {
        /// The character.
        character: char,
        /// The text that contains it.
        text: String,
    },
    /// The vocabulary lists a character twice.
    #[error("the vocabulary lists `{0}` twice")]
    DuplicateCharacter(char),
    /// The vocabulary lists a piece twice.
    #[error("the vocabulary lists the piece `{0}` twice")]
    DuplicatePiece(String),
    /// A merge joins pieces, or makes a piece, that the vocabulary does not list.
    #[error("the merge of `{left}` and `{right}` needs a piece that the vocabulary does not list")]
    UnlistedPiece {
        /// The left piece.
        left: String,
        /// The right piece.
        right: String,
    },
    /// The requested BPE vocabulary has fewer ids than the texts need for their characters.
    #[error(
        "a BPE vocabulary of {size} ids is too small: the texts have {characters} different characters, so at least {minimum} ids are needed"
    )]
    TooFewIds {
        /// The requested number of ids.
        size: usize,
        /// Different characters in the texts, including the space.
        characters: usize,
        /// Ids needed for these characters and the reserved ids.
        minimum: usize,
    },
    /// A vocabulary of no kind, or of several kinds.
    #[error("a vocabulary needs exactly one of `characters`, `bpe` and `hugging_face`")]
    NotOneVocabulary,
    /// A Hugging Face file that the `tokenizers` crate cannot read.
    #[error("the Hugging Face tokenizer cannot be used: {0}")]
    HuggingFace(String),
    /// A Hugging Face file with a model other than BPE.
    #[error("the Hugging Face tokenizer has a {0} model; only BPE is supported")]
    NotBpe(&'static str),
    /// A Hugging Face file whose unknown token is not in its vocabulary.
    #[error("the Hugging Face tokenizer names `{0}` as its unknown token, but does not list it")]
    UnknownPieceMissing(String),
    /// The file cannot be read or written.
    #[error("cannot use vocabulary file {}", file.display())]
    File {
        /// The vocabulary file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file does not contain a vocabulary.
    #[error("{} is not a vocabulary file", file.display())]
    Json {
        /// The file that was read.
        file: PathBuf,
        /// What is wrong with its JSON or its vocabulary.
        source: serde_json::Error,
    },
}
