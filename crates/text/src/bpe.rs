//! Byte-pair encoding: word pieces trained on texts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::{Model, Trainer};

use crate::characters::CharTokenizer;
use crate::encoded::Encoded;
use crate::error::TextError;
use crate::normalize::{Case, normalize};

/// Character before every word, including the first word, so that a word has the same pieces at every position.
///
/// SentencePiece uses U+2581, which may also occur in a text. A normalized text never begins with a space, so one
/// space can be added at the start and removed again without loss.
const SPACE: char = ' ';

/// Serialized form of a trained vocabulary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BpeLists {
    /// Word pieces in the order of their ids.
    pub(crate) pieces: Vec<String>,
    /// Pairs of pieces that are merged to one piece, in the order of merging.
    merges: Vec<(String, String)>,
}

/// Byte-pair encoding with a trained vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BpeVocabulary {
    lists: BpeLists,
    model: BPE,
}

impl BpeVocabulary {
    /// Trains a vocabulary on `texts` until it has `size` ids or nothing is left to merge.
    ///
    /// The trainer of the `tokenizers` crate numbers characters by code point and merges the most frequent pair; of
    /// equally frequent pairs it merges the pair with the lower ids. The result therefore depends neither on the order
    /// of the texts nor on the order of the trainer's hash maps, and a test checks this.
    pub(crate) fn train<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, size: usize) -> Result<Self, TextError> {
        let texts: Vec<String> = texts.into_iter().map(|text| normalize(text.as_ref(), Case::Keep)).collect();
        let characters: BTreeSet<char> = texts.iter().flat_map(|text| text.chars()).chain([SPACE]).collect();
        let reserved = CharTokenizer::RESERVED as usize;
        let minimum = reserved + characters.len();
        if size < minimum {
            return Err(TextError::TooFewIds { size, characters: characters.len(), minimum });
        }
        // The trainer allocates memory for the requested size, and cannot merge more often than there are characters.
        let most = characters.len() + texts.iter().map(|text| text.len() + SPACE.len_utf8()).sum::<usize>();
        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size((size - reserved).min(most))
            .initial_alphabet([SPACE].into())
            .build();
        trainer.feed(texts.iter(), |text| Ok(words(text).collect())).expect("splitting at spaces cannot fail");
        let mut model = BPE::default();
        trainer.train(&mut model).expect("the trainer returns no error");
        Self::new(BpeLists::from_model(&model))
    }

    /// Builds a vocabulary from the pieces and merges of an earlier training, and checks that they fit together.
    pub(crate) fn new(lists: BpeLists) -> Result<Self, TextError> {
        let mut known = HashSet::new();
        if let Some(piece) = lists.pieces.iter().find(|&piece| !known.insert(piece.as_str())) {
            return Err(TextError::DuplicatePiece(piece.clone()));
        }
        let fits =
            |(a, b): &(String, String)| [a, b, &format!("{a}{b}")].iter().all(|piece| known.contains(piece.as_str()));
        if let Some((left, right)) = lists.merges.iter().find(|merge| !fits(merge)) {
            return Err(TextError::UnlistedPiece { left: left.clone(), right: right.clone() });
        }
        let ids: Vocab = lists.pieces.iter().cloned().zip(CharTokenizer::RESERVED..).collect();
        let model = BPE::builder().vocab_and_merges(ids, lists.merges.clone()).build();
        let model = model.expect("every piece that a merge needs was looked up above");
        Ok(Self { lists, model })
    }

    pub(crate) fn lists(&self) -> &BpeLists {
        &self.lists
    }

    /// Returns the number of ids, including the reserved ids.
    pub(crate) fn size(&self) -> usize {
        self.lists.pieces.len() + CharTokenizer::RESERVED as usize
    }

    /// Encodes a normalized text as ids.
    pub(crate) fn encode(&self, text: &str) -> Encoded {
        let mut encoded = Encoded::default();
        for word in words(text) {
            // Encode the parts between unknown characters: the `tokenizers` crate drops those, or gives several of
            // them one id.
            let mut rest = word.as_str();
            while let Some((place, character)) = rest.char_indices().find(|&(_, character)| !self.knows(character)) {
                encoded.ids.extend(self.merge(&rest[..place]));
                encoded.push_unknown(character);
                rest = &rest[place + character.len_utf8()..];
            }
            encoded.ids.extend(self.merge(rest));
        }
        encoded
    }

    /// Decodes `ids` to text. The ids must be neither special ids nor language ids.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let piece = |&id: &u32| {
            let place = id.checked_sub(CharTokenizer::RESERVED);
            place.and_then(|place| self.lists.pieces.get(place as usize)).map_or("\u{fffd}", String::as_str)
        };
        let text: String = ids.iter().map(piece).collect();
        text.strip_prefix(SPACE).map(str::to_owned).unwrap_or(text)
    }

    fn knows(&self, character: char) -> bool {
        self.model.token_to_id(character.encode_utf8(&mut [0; 4])).is_some()
    }

    /// Merges characters, all of them known, to pieces and returns the ids of the pieces.
    fn merge(&self, characters: &str) -> impl Iterator<Item = u32> {
        let tokens = self.model.tokenize(characters).expect("every character is known");
        tokens.into_iter().map(|token| token.id)
    }
}

impl BpeLists {
    /// Extracts the trained vocabulary of `model`; only the JSON form of the model contains the merges.
    fn from_model(model: &BPE) -> Self {
        #[derive(Deserialize)]
        struct Trained {
            vocab: BTreeMap<String, u32>,
            merges: Vec<(String, String)>,
        }
        let trained = serde_json::to_value(model).and_then(serde_json::from_value);
        let Trained { vocab, merges } = trained.expect("the crate writes a vocabulary and merges");
        let mut pieces: Vec<(u32, String)> = vocab.into_iter().map(|(piece, id)| (id, piece)).collect();
        pieces.sort_unstable();
        Self { pieces: pieces.into_iter().map(|(_, piece)| piece).collect(), merges }
    }
}

/// Splits a normalized text into words, each with a space before it.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(|word| format!("{SPACE}{word}"))
}
