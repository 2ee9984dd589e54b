//! Vocabulary of single characters.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use plimsoll_core::{read_text_file, replace_file};
use serde::{Deserialize, Serialize};

use crate::error::TextError;
use crate::normalize::{Case, normalize};

/// Serialized form of a [`CharTokenizer`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VocabularyFile {
    characters: Vec<char>,
}

/// Vocabulary of single characters.
///
/// Ids: 0 is the CTC blank and padding, 1 an unknown character, 2 and 3 are the start and end of a decoder's sequence;
/// the characters follow in the order of the vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "VocabularyFile", into = "VocabularyFile")]
pub struct CharTokenizer {
    characters: Vec<char>,
    /// Characters in sorted order with their ids, for lookup.
    ids: Vec<(char, u32)>,
    /// A bit for each ASCII character of the vocabulary.
    ascii: u128,
}

impl CharTokenizer {
    /// Id of the CTC blank and of padding.
    pub const BLANK: u32 = 0;
    /// Id of unknown characters.
    pub const UNKNOWN: u32 = 1;
    /// Id that starts a decoder's sequence.
    pub const START: u32 = 2;
    /// Id that ends a decoder's sequence.
    pub const END: u32 = 3;
    /// Number of ids before the first character: blank, unknown, start and end.
    pub(crate) const RESERVED: u32 = 4;

    /// Builds the vocabulary of all characters in `texts`, in the order of their code points.
    pub fn from_texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Self {
        let mut characters = BTreeSet::new();
        for text in texts {
            characters.extend(normalize(text.as_ref(), Case::Keep).chars());
        }
        Self::new(characters.into_iter().collect()).expect("a set has no duplicates")
    }

    /// Builds the vocabulary of `characters`, in the given order.
    ///
    /// # Errors
    /// When a character is listed twice.
    pub fn new(characters: Vec<char>) -> Result<Self, TextError> {
        let mut ids: Vec<(char, u32)> = characters.iter().copied().zip(Self::RESERVED..).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(TextError::DuplicateCharacter(pair[0].0)),
            None => {
                let bit = |&character: &char| if character.is_ascii() { 1u128 << u32::from(character) } else { 0 };
                let ascii = characters.iter().map(bit).fold(0, |all, bit| all | bit);
                Ok(Self { characters, ids, ascii })
            }
        }
    }

    /// Reads a vocabulary from the JSON file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read or does not contain a vocabulary.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TextError> {
        let file = path.as_ref();
        let text = read_text_file(file).map_err(|source| TextError::File { file: file.into(), source })?;
        serde_json::from_str(&text).map_err(|source| TextError::Json { file: file.into(), source })
    }

    /// Writes the vocabulary to a JSON file at `path`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), TextError> {
        let file = path.as_ref();
        let text =
            serde_json::to_string_pretty(self).map_err(|source| TextError::Json { file: file.into(), source })?;
        replace_file(file, |file| writeln!(file, "{text}"))
            .map_err(|source| TextError::File { file: file.into(), source })
    }

    /// Returns the number of ids, including the four reserved ids: the output width of a model.
    pub fn size(&self) -> usize {
        self.characters.len() + Self::RESERVED as usize
    }

    /// Returns the characters in the order of their ids.
    pub fn characters(&self) -> &[char] {
        &self.characters
    }

    /// Encodes a text as ids, with white space collapsed.
    ///
    /// # Errors
    /// When a character is not in the vocabulary. [`encode_lossy`](Self::encode_lossy) accepts it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let unknown = |character| TextError::UnknownCharacter { character, text: text.into() };
        normalize(text, Case::Keep)
            .chars()
            .map(|character| self.id(character).ok_or_else(|| unknown(character)))
            .collect()
    }

    /// Counts the characters of a normalized text, and those outside the vocabulary among them.
    pub(crate) fn count(&self, text: &str) -> (usize, usize) {
        if text.is_ascii() {
            let is_unknown = |&&byte: &&u8| self.ascii >> byte & 1 == 0;
            return (text.len(), text.as_bytes().iter().filter(is_unknown).count());
        }
        let characters = || text.chars();
        (characters().count(), characters().filter(|&character| self.id(character).is_none()).count())
    }

    /// Encodes a text as ids. Unknown characters become [`UNKNOWN`](Self::UNKNOWN); the second value is their number.
    pub fn encode_lossy(&self, text: &str) -> (Vec<u32>, usize) {
        let mut unknown = 0;
        let mut id = |character| {
            self.id(character).unwrap_or_else(|| {
                unknown += 1;
                Self::UNKNOWN
            })
        };
        let ids = normalize(text, Case::Keep).chars().map(&mut id).collect();
        (ids, unknown)
    }

    /// Decodes `ids` to text. Blank, start and end are dropped; unknown ids become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> String {
        let character = |&id: &u32| {
            let place = id.checked_sub(Self::RESERVED).map(|place| place as usize);
            place.and_then(|place| self.characters.get(place)).copied().unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        ids.iter().filter(|&&id| ![Self::BLANK, Self::START, Self::END].contains(&id)).map(character).collect()
    }

    pub(crate) fn id(&self, character: char) -> Option<u32> {
        let place = self.ids.binary_search_by_key(&character, |&(character, _)| character).ok()?;
        Some(self.ids[place].1)
    }
}

impl TryFrom<VocabularyFile> for CharTokenizer {
    type Error = TextError;
    fn try_from(vocabulary: VocabularyFile) -> Result<Self, TextError> {
        Self::new(vocabulary.characters)
    }
}

impl From<CharTokenizer> for VocabularyFile {
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
    fn every_script_is_decoded_unchanged() {
        for text in ["good morning", "देव बरें करूं", "سلام دنیا", "żółć 日本 👋🏽"]
        {
            let tokenizer = CharTokenizer::from_texts([text]);
            let ids = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&ids), text);
            assert_eq!(ids.len(), text.chars().count());
            assert!(ids.iter().all(|&id| id >= 4 && (id as usize) < tokenizer.size()));
        }
    }

    #[test]
    fn ids_follow_the_order_of_the_characters() {
        let tokenizer = CharTokenizer::from_texts(["cab", " a  b\n"]);
        assert_eq!(tokenizer.characters(), [' ', 'a', 'b', 'c']);
        assert_eq!(tokenizer.encode("\tabc  a ").unwrap(), [5, 6, 7, 4, 5]);
        assert_eq!(tokenizer.decode(&[2, 0, 5, 0, 0, 6, 1, 99, 3]), "ab\u{fffd}\u{fffd}");
    }

    #[test]
    fn an_unknown_character_is_reported_or_counted() {
        let tokenizer = CharTokenizer::from_texts(["abc"]);
        let error = tokenizer.encode("abकb").unwrap_err();
        assert_eq!(error.to_string(), "the character `क` (U+0915) in \"abकb\" is not in the vocabulary");
        assert_eq!(tokenizer.encode_lossy("abकbx"), (vec![4, 5, 1, 5, 1], 2));
    }

    #[test]
    fn a_vocabulary_is_written_and_read() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("vocabulary.json");
        let tokenizer = CharTokenizer::from_texts(["سلام", "कोंकणी", "\" \\"]);
        tokenizer.write(&path).unwrap();
        assert_eq!(CharTokenizer::read(&path).unwrap(), tokenizer);
        for (wrong, cause) in
            [("{", "EOF"), (r#"{"characters": ["a", "a"]}"#, "twice"), (r#"{"letters": []}"#, "letters")]
        {
            std::fs::write(&path, wrong).unwrap();
            let error = CharTokenizer::read(&path).unwrap_err();
            assert!(error.to_string().ends_with("vocabulary.json is not a vocabulary file"));
            let TextError::Json { source, .. } = error else { panic!("{error}") };
            assert!(source.to_string().contains(cause), "{source}");
        }
    }

    proptest! {
        #[test]
        fn every_text_in_the_vocabulary_can_be_encoded(text in any::<String>()) {
            let tokenizer = CharTokenizer::from_texts([&text]);
            prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&text).unwrap()), normalize(&text, Case::Keep));
        }
    }
}
