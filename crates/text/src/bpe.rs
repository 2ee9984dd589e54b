//! Byte-pair encoding: words in pieces that were learnt from texts.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
use tokenizers::{Model, Trainer};

use crate::characters::CharTokenizer;
use crate::encoded::Encoded;
use crate::error::TextError;
use crate::normalize::{Case, normalise};

/// The letter before every word, the first one too, so that a word has the same pieces wherever it stands.
///
/// SentencePiece writes U+2581 for it, which a text may hold as well. A normalised text never begins with a space, so
/// that one space at the start can be added and taken away again without loss.
const SPACE: char = ' ';

/// What byte-pair encoding has learnt, as it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PieceLists {
    /// The pieces in the order of their ids.
    pub(crate) pieces: Vec<String>,
    /// Neighbours that become one piece, the first to be merged first.
    merges: Vec<(String, String)>,
}

/// Byte-pair encoding with learnt pieces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pieces {
    lists: PieceLists,
    model: BPE,
}

impl Pieces {
    /// Learns pieces from `texts` until there are `size` ids or nothing is left to merge.
    ///
    /// The crate's trainer numbers the letters by code point and merges the most frequent pair, of equals the one with
    /// the lower ids. So neither the order of the texts nor that of its hash maps matters; a test holds it to that.
    pub(crate) fn learn<T: AsRef<str>>(texts: impl IntoIterator<Item = T>, size: usize) -> Result<Self, TextError> {
        let texts: Vec<String> = texts.into_iter().map(|text| normalise(text.as_ref(), Case::Keep)).collect();
        let letters: BTreeSet<char> = texts.iter().flat_map(|text| text.chars()).chain([SPACE]).collect();
        let reserved = CharTokenizer::RESERVED as usize;
        let least = reserved + letters.len();
        if size < least {
            return Err(TextError::TooFewIds { size, letters: letters.len(), least });
        }
        // The trainer makes room for all that is asked for, and no more merges are possible than there are letters.
        let most = letters.len() + texts.iter().map(|text| text.len() + SPACE.len_utf8()).sum::<usize>();
        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size((size - reserved).min(most))
            .initial_alphabet([SPACE].into())
            .build();
        trainer.feed(texts.iter(), |text| Ok(words(text).collect())).expect("splitting at spaces cannot fail");
        let mut model = BPE::default();
        trainer.train(&mut model).expect("the trainer returns no error");
        Self::new(PieceLists::of(&model))
    }

    /// Takes pieces and merges that were learnt before.
    pub(crate) fn new(lists: PieceLists) -> Result<Self, TextError> {
        let mut known = HashSet::new();
        if let Some(piece) = lists.pieces.iter().find(|&piece| !known.insert(piece.as_str())) {
            return Err(TextError::PieceTwice(piece.clone()));
        }
        let fits =
            |(a, b): &(String, String)| [a, b, &format!("{a}{b}")].iter().all(|piece| known.contains(piece.as_str()));
        if let Some((left, right)) = lists.merges.iter().find(|merge| !fits(merge)) {
            return Err(TextError::Merge { left: left.clone(), right: right.clone() });
        }
        let ids: Vocab = lists.pieces.iter().cloned().zip(CharTokenizer::RESERVED..).collect();
        let model = BPE::builder().vocab_and_merges(ids, lists.merges.clone()).build();
        let model = model.expect("every piece that a merge needs was looked up above");
        Ok(Self { lists, model })
    }

    pub(crate) fn lists(&self) -> &PieceLists {
        &self.lists
    }

    /// Ids in use, the reserved ones among them.
    pub(crate) fn size(&self) -> usize {
        self.lists.pieces.len() + CharTokenizer::RESERVED as usize
    }

    /// The ids of a normalised text.
    pub(crate) fn encode(&self, text: &str) -> Encoded {
        let mut encoded = Encoded::default();
        for word in words(text) {
            // Between unknown letters, because the crate drops those or gives many of them one id.
            let mut rest = word.as_str();
            while let Some((place, letter)) = rest.char_indices().find(|&(_, letter)| !self.knows(letter)) {
                encoded.ids.extend(self.merge(&rest[..place]));
                encoded.push_unknown(letter);
                rest = &rest[place + letter.len_utf8()..];
            }
            encoded.ids.extend(self.merge(rest));
        }
        encoded
    }

    /// The text of `ids`, none of which is silent.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let piece = |&id: &u32| {
            let place = id.checked_sub(CharTokenizer::RESERVED);
            place.and_then(|place| self.lists.pieces.get(place as usize)).map_or("\u{fffd}", String::as_str)
        };
        let text: String = ids.iter().map(piece).collect();
        text.strip_prefix(SPACE).map(str::to_owned).unwrap_or(text)
    }

    fn knows(&self, letter: char) -> bool {
        self.model.token_to_id(letter.encode_utf8(&mut [0; 4])).is_some()
    }

    /// The ids of known letters.
    fn merge(&self, letters: &str) -> impl Iterator<Item = u32> {
        let tokens = self.model.tokenize(letters).expect("every letter is known");
        tokens.into_iter().map(|token| token.id)
    }
}

impl PieceLists {
    /// What the trainer has learnt; only its JSON shows the merges.
    fn of(model: &BPE) -> Self {
        #[derive(Deserialize)]
        struct Learnt {
            vocab: BTreeMap<String, u32>,
            merges: Vec<(String, String)>,
        }
        let learnt = serde_json::to_value(model).and_then(serde_json::from_value);
        let Learnt { vocab, merges } = learnt.expect("the crate writes a vocabulary and pairs");
        let mut pieces: Vec<(u32, String)> = vocab.into_iter().map(|(piece, id)| (id, piece)).collect();
        pieces.sort_unstable();
        Self { pieces: pieces.into_iter().map(|(_, piece)| piece).collect(), merges }
    }
}

/// The words of a normalised text, each after its space.
fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_whitespace().map(|word| format!("{SPACE}{word}"))
}
