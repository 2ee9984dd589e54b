//! The text front end of every model: characters or pieces of words, and languages.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bpe::{PieceLists, Pieces};
use crate::characters::CharTokenizer;
use crate::encoded::Encoded;
use crate::error::TextError;
use crate::hugging_face::HuggingFace;
use crate::normalize::{Case, normalise};
use crate::numbers::Numbers;

/// Text as numbers: characters or pieces of words, and the languages that a text may be in.
///
/// Ids: 0 is CTC's blank and the padding, 1 stands for what is unknown, 2 and 3 are a decoder's start and end, then come
/// the characters or the pieces, then the languages by name. A text never holds a language: whoever feeds a model puts
/// its id where the model wants it.
///
/// ```
/// use plimsoll_text::Tokenizer;
///
/// let texts = ["देव बरें करूं", "सगळें बरें", "देव बरें"];
/// let tokenizer = Tokenizer::bpe(texts, 24)?.with_languages(["kok".into(), "en".into()]);
/// assert_eq!(tokenizer.languages(), ["en", "kok"]);
/// assert_eq!(tokenizer.language("kok"), Some(25));
/// assert_eq!(tokenizer.size(), 26);
///
/// let ids = tokenizer.encode("बरें  देव")?;
/// assert!(ids.len() < "बरें देव".chars().count());
/// assert_eq!(tokenizer.decode(&ids), "बरें देव");
/// # Ok::<(), plimsoll_text::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct Tokenizer {
    alphabet: Alphabet,
    languages: Vec<String>,
    /// The id of each language.
    language_ids: Vec<u32>,
    numbers: Numbers,
}

/// What a text is made of.
#[derive(Clone, Debug, PartialEq)]
enum Alphabet {
    Characters(CharTokenizer),
    Pieces(Box<Pieces>),
    HuggingFace(Box<HuggingFace>),
}

impl Tokenizer {
    /// The id of CTC's blank and of padding.
    pub const BLANK: u32 = CharTokenizer::BLANK;
    /// The id of what the vocabulary does not know.
    pub const UNKNOWN: u32 = CharTokenizer::UNKNOWN;
    /// The id that a decoder begins with.
    pub const START: u32 = CharTokenizer::START;
    /// The id that a decoder ends with.
    pub const END: u32 = CharTokenizer::END;
    /// What the ids before the first character or piece stand for, in order.
    const RESERVED: [&str; CharTokenizer::RESERVED as usize] = ["<blank>", "<unk>", "<sos>", "<eos>"];

    /// All characters in `texts`, in the order of their code points.
    pub fn characters<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::new(Alphabet::Characters(CharTokenizer::learn(texts)))
    }

    /// Pieces of words learnt from `texts`, the same whatever the order of the texts.
    ///
    /// `size` counts all ids but those of languages. Small texts may yield fewer, since no piece crosses a word.
    pub fn bpe<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, size: usize) -> Result<Self, TextError> {
        Pieces::learn(texts, size).map(|pieces| Self::new(Alphabet::Pieces(Box::new(pieces))))
    }

    /// Reads a vocabulary file, the `model.json` of a model of ours, or a Hugging Face `tokenizer.json` with a BPE model; its
    /// content tells which it is.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TextError> {
        let file = path.as_ref();
        let text = fs::read_to_string(file).map_err(|source| TextError::File { file: file.into(), source })?;
        let read = |text: &str| {
            let mut value: Value = serde_json::from_str(text)?;
            if let Some(own) = value.get_mut("tokenizer") {
                return serde_json::from_value(own.take());
            }
            let foreign = value.get("model").is_some();
            serde_json::from_value(if foreign { json!({ "hugging_face": value }) } else { value })
        };
        read(&text).map_err(|source| TextError::Json { file: file.into(), source })
    }

    /// The same with these languages in place of those it had; their ids come after all others.
    ///
    /// A Hugging Face file may hold a token such as `[en]` itself: it stays that language's id, so that weights trained
    /// with the file fit.
    #[must_use]
    pub fn with_languages(self, languages: impl IntoIterator<Item = String>) -> Self {
        let languages: Vec<String> = languages.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let mut next = self.alphabet.size() as u32;
        let id = |language: &String| {
            self.alphabet.language(language).unwrap_or_else(|| {
                next += 1;
                next - 1
            })
        };
        let language_ids = languages.iter().map(id).collect();
        Self { languages, language_ids, ..self }
    }

    /// The same, which reads numbers so; whoever learnt one from texts should have had theirs said, too.
    #[must_use]
    pub fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers, ..self }
    }

    /// How it reads numbers.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// The languages, by name.
    pub fn languages(&self) -> &[String] {
        &self.languages
    }

    /// The id of a language.
    pub fn language(&self, name: &str) -> Option<u32> {
        let place = self.languages.binary_search_by(|language| language.as_str().cmp(name)).ok()?;
        Some(self.language_ids[place])
    }

    /// Ids in use, the reserved ones and the languages among them: the width of a model's output.
    pub fn size(&self) -> usize {
        self.alphabet.size() + self.own_languages().count()
    }

    /// The ids of a text, its white space collapsed; an unknown letter is an error.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let Encoded { ids, unknown } = self.encoded(text);
        match unknown.first() {
            Some(&letter) => Err(TextError::UnknownLetter { letter, text: text.into() }),
            None => Ok(ids),
        }
    }

    /// The ids of a text, and how many letters of it are unknown.
    pub fn encode_lossy(&self, text: &str) -> (Vec<u32>, usize) {
        let Encoded { ids, unknown } = self.encoded(text);
        (ids, unknown.len())
    }

    /// The letters of a text that it does not know.
    pub fn unknown_in(&self, text: &str) -> BTreeSet<char> {
        self.encoded(text).unknown.into_iter().collect()
    }

    /// The text of `ids`: blanks, starts, ends and languages vanish, and what is unknown becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let silent = |id: &u32| [Self::BLANK, Self::START, Self::END].contains(id) || self.language_ids.contains(id);
        let ids: Vec<u32> = ids.iter().copied().filter(|id| !silent(id)).collect();
        match &self.alphabet {
            Alphabet::Characters(characters) => characters.decode(&ids),
            Alphabet::Pieces(pieces) => pieces.decode(&ids),
            Alphabet::HuggingFace(file) => file.decode(&ids),
        }
    }

    /// What each id stands for, in order: `<blank>`, `<unk>`, `<sos>`, `<eos>`, characters or pieces, then languages as
    /// `[en]`.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Self::RESERVED.map(String::from).into();
        match &self.alphabet {
            Alphabet::Characters(characters) => names.extend(characters.characters().iter().map(char::to_string)),
            Alphabet::Pieces(pieces) => names.extend_from_slice(&pieces.lists().pieces),
            Alphabet::HuggingFace(file) => names.extend(file.names()),
        }
        names.extend(self.own_languages().map(|language| language_token(language)));
        names
    }

    fn new(alphabet: Alphabet) -> Self {
        Self { alphabet, languages: Vec::new(), language_ids: Vec::new(), numbers: Numbers::default() }
    }

    fn encoded(&self, text: &str) -> Encoded {
        self.alphabet.encode(&self.numbers.said(text))
    }

    /// The languages that the alphabet has no token for.
    fn own_languages(&self) -> impl Iterator<Item = &String> {
        let places = self.languages.iter().zip(&self.language_ids);
        places.filter(|&(_, &id)| id as usize >= self.alphabet.size()).map(|(language, _)| language)
    }
}

impl Alphabet {
    /// Ids in use, the reserved ones among them.
    fn size(&self) -> usize {
        match self {
            Self::Characters(characters) => characters.size(),
            Self::Pieces(pieces) => pieces.size(),
            Self::HuggingFace(file) => file.size(),
        }
    }

    /// The id of a language, where it has a token for it.
    fn language(&self, name: &str) -> Option<u32> {
        match self {
            Self::Characters(_) | Self::Pieces(_) => None,
            Self::HuggingFace(file) => file.id(&language_token(name)),
        }
    }

    fn encode(&self, text: &str) -> Encoded {
        let text = normalise(text, Case::Keep);
        match self {
            Self::Characters(characters) => {
                let mut encoded = Encoded::default();
                for letter in text.chars() {
                    match characters.id(letter) {
                        Some(id) => encoded.ids.push(id),
                        None => encoded.push_unknown(letter),
                    }
                }
                encoded
            }
            Self::Pieces(pieces) => pieces.encode(&text),
            Self::HuggingFace(file) => file.encode(&text),
        }
    }
}

/// How a language is written where there are only tokens.
fn language_token(name: &str) -> String {
    format!("[{name}]")
}

/// A tokenizer as it is written: one of the first three, the languages, and how it reads numbers.
///
/// An enum would say "one of" better, but characters without languages must stay what [`CharTokenizer`] writes, and that
/// would take serde's `flatten`, which lets misspelt keys through.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    characters: Option<Vec<char>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bpe: Option<PieceLists>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hugging_face: Option<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    languages: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    numbers: Numbers,
}

fn is_default(numbers: &Numbers) -> bool {
    *numbers == Numbers::default()
}

impl TryFrom<Saved> for Tokenizer {
    type Error = TextError;
    fn try_from(saved: Saved) -> Result<Self, TextError> {
        let alphabet = match (saved.characters, saved.bpe, saved.hugging_face) {
            (Some(characters), None, None) => Alphabet::Characters(CharTokenizer::new(characters)?),
            (None, Some(lists), None) => Alphabet::Pieces(Box::new(Pieces::new(lists)?)),
            (None, None, Some(file)) => Alphabet::HuggingFace(Box::new(HuggingFace::new(file)?)),
            _ => return Err(TextError::NotOneAlphabet),
        };
        Ok(Self::new(alphabet).with_languages(saved.languages).with_numbers(saved.numbers))
    }
}

impl From<Tokenizer> for Saved {
    fn from(tokenizer: Tokenizer) -> Self {
        let saved = Self { languages: tokenizer.languages, numbers: tokenizer.numbers, ..Self::default() };
        match tokenizer.alphabet {
            Alphabet::Characters(characters) => Self { characters: Some(characters.characters().to_vec()), ..saved },
            Alphabet::Pieces(pieces) => Self { bpe: Some(pieces.lists().clone()), ..saved },
            Alphabet::HuggingFace(file) => Self { hugging_face: Some(file.file().clone()), ..saved },
        }
    }
}
