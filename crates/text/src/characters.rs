//! A vocabulary of single characters.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::TextError;
use crate::normalize::{Case, normalise};

/// The vocabulary file, as it is written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vocabulary {
    characters: Vec<char>,
}

/// A vocabulary of characters.
///
/// Ids: 0 is CTC's blank and the padding, 1 stands for what is unknown, 2 and 3 are a decoder's start and end, then come
/// the characters in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vocabulary", into = "Vocabulary")]
pub struct CharTokenizer {
    characters: Vec<char>,
    /// The same, sorted, with their ids, for looking up.
    ids: Vec<(char, u32)>,
}

impl CharTokenizer {
    /// The id of CTC's blank and of padding.
    pub const BLANK: u32 = 0;
    /// The id of what the vocabulary does not know.
    pub const UNKNOWN: u32 = 1;
    /// The id that a decoder begins with.
    pub const START: u32 = 2;
    /// The id that a decoder ends with.
    pub const END: u32 = 3;
    /// Ids before the first character.
    pub(crate) const RESERVED: u32 = 4;

    /// The vocabulary of all characters in `texts`, in the order of their code points.
    pub fn learn<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut characters = BTreeSet::new();
        for text in texts {
            characters.extend(normalise(text.as_ref(), Case::Keep).chars());
        }
        Self::new(characters.into_iter().collect()).expect("a set holds nothing twice")
    }

    /// The vocabulary of `characters`, in the order given.
    pub fn new(characters: Vec<char>) -> Result<Self, TextError> {
        let mut ids: Vec<(char, u32)> = characters.iter().copied().zip(Self::RESERVED..).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(TextError::Twice(pair[0].0)),
            None => Ok(Self { characters, ids }),
        }
    }

    /// Reads a vocabulary file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TextError> {
        let file = path.as_ref();
        let text = fs::read_to_string(file).map_err(|source| TextError::File { file: file.into(), source })?;
        serde_json::from_str(&text).map_err(|source| TextError::Json { file: file.into(), source })
    }

    /// Writes a vocabulary file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), TextError> {
        let file = path.as_ref();
        let text =
            serde_json::to_string_pretty(self).map_err(|source| TextError::Json { file: file.into(), source })?;
        fs::write(file, text + "\n").map_err(|source| TextError::File { file: file.into(), source })
    }

    /// Ids in use, the four that are no characters among them: the width of a model's output.
    pub fn size(&self) -> usize {
        self.characters.len() + Self::RESERVED as usize
    }

    /// The characters, in the order of their ids.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// The ids of a text, its white space collapsed; an unknown letter is an error.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let unknown = |letter| TextError::UnknownLetter { letter, text: text.into() };
        normalise(text, Case::Keep).chars().map(|letter| self.id(letter).ok_or_else(|| unknown(letter))).collect()
    }

    /// The ids of a text, and how many letters of it are unknown.
    pub fn encode_lossy(&self, text: &str) -> (Vec<u32>, usize) {
        let mut unknown = 0;
        let mut id = |letter| {
            self.id(letter).unwrap_or_else(|| {
                unknown += 1;
                Self::UNKNOWN
            })
        };
        let ids = normalise(text, Case::Keep).chars().map(&mut id).collect();
        (ids, unknown)
    }

    /// The text of `ids`: blanks, starts and ends vanish, and what is unknown becomes U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let character = |&id: &u32| {
            let place = id.checked_sub(Self::RESERVED).map(|place| place as usize);
            place.and_then(|place| self.characters.get(place)).copied().unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        ids.iter().filter(|&&id| ![Self::BLANK, Self::START, Self::END].contains(&id)).map(character).collect()
    }

    pub(crate) fn id(&self, letter: char) -> Option<u32> {
        let place = self.ids.binary_search_by_key(&letter, |&(letter, _)| letter).ok()?;
        Some(self.ids[place].1)
    }
}

impl TryFrom<Vocabulary> for CharTokenizer {
    type Error = TextError;
    fn try_from(vocabulary: Vocabulary) -> Result<Self, TextError> {
        Self::new(vocabulary.characters)
    }
}

impl From<CharTokenizer> for Vocabulary {
    fn from(tokenizer: CharTokenizer) -> Self {
        Self { characters: tokenizer.characters }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn every_script_comes_back() {
        for text in ["good morning", "देव बरें करूं", "سلام دنیا", "żółć 日本 👋🏽"]
        {
            let tokenizer = CharTokenizer::learn([text]);
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids), text);
            assert_eq!(ids.len(), text.chars().count());
            assert!(ids.iter().all(|&id| id >= 4 && (id as usize) < tokenizer.size()));
        }
    }

    #[test]
    fn ids_are_in_the_order_of_the_letters() {
        let tokenizer = CharTokenizer::learn(["cab", " a  b\n"]);
        assert_eq!(tokenizer.characters(), [' ', 'a', 'b', 'c']);
        assert_eq!(tokenizer.encode("\tabc  a ").unwrap(), [5, 6, 7, 4, 5]);
        assert_eq!(tokenizer.decode(&[2, 0, 5, 0, 0, 6, 1, 99, 3]), "ab\u{fffd}\u{fffd}");
    }

    #[test]
    fn an_unknown_letter_is_named_or_counted() {
        let tokenizer = CharTokenizer::learn(["abc"]);
        let error = tokenizer.encode("abकb").unwrap_err();
        assert_eq!(error.to_string(), "the letter `क` (U+0915) in \"abकb\" is not in the vocabulary");
        assert_eq!(tokenizer.encode_lossy("abकbx"), (vec![4, 5, 1, 5, 1], 2));
    }

    #[test]
    fn a_vocabulary_is_written_and_read() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("vocabulary.json");
        let tokenizer = CharTokenizer::learn(["سلام", "कोंकणी", "\" \\"]);
        tokenizer.write(&path).unwrap();
        assert_eq!(CharTokenizer::read(&path).unwrap(), tokenizer);
        for (wrong, cause) in
            [("{", "EOF"), (r#"{"characters": ["a", "a"]}"#, "twice"), (r#"{"letters": []}"#, "letters")]
        {
            fs::write(&path, wrong).unwrap();
            let error = CharTokenizer::read(&path).unwrap_err();
            assert!(error.to_string().ends_with("vocabulary.json is not a vocabulary file"));
            let TextError::Json { source, .. } = error else { panic!("{error}") };
            assert!(source.to_string().contains(cause), "{source}");
        }
    }

    proptest! {
        #[test]
        fn what_was_learnt_can_be_encoded(text in any::<String>()) {
            let tokenizer = CharTokenizer::learn([&text]);
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), normalise(&text, Case::Keep));
        }
    }
}
