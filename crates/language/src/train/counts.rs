//! Counts of n-grams in texts.

use rustc_hash::FxHashMap;

use crate::error::LanguageError;
use crate::model::Unit;
use crate::state::ORDER_MAX;
use crate::vocabulary::{UNKNOWN, check_word};

/// Words of an n-gram, the last word first; places behind the order are zero.
pub(super) type Gram = [u32; ORDER_MAX];

/// Id of the start of a sentence.
pub(super) const BEGIN: u32 = 1;
/// Id of the end of a sentence.
pub(super) const END: u32 = 2;

/// Counts the n-grams of the highest order, with as many starts before each sentence as they need.
pub(super) struct Counter {
    order: usize,
    unit: Unit,
    ids: FxHashMap<String, u32>,
    words: Vec<String>,
    counts: FxHashMap<Gram, u64>,
    pub(super) n_sentences: u64,
    pub(super) n_tokens: u64,
    pub(super) n_special: u64,
}

impl Counter {
    pub(super) fn new(order: usize, unit: Unit) -> Self {
        let words: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
        let ids = words.iter().cloned().zip(UNKNOWN..).collect();
        let counts = FxHashMap::default();
        Self { order, unit, ids, words, counts, n_sentences: 0, n_tokens: 0, n_special: 0 }
    }

    pub(super) fn n_ngrams(&self) -> u64 {
        self.counts.len() as u64
    }

    /// Counts the n-grams of a sentence.
    pub(super) fn add(&mut self, sentence: &str) -> Result<(), LanguageError> {
        let mut gram = [0; ORDER_MAX];
        gram[..self.order].fill(BEGIN);
        for unit in self.unit.split(sentence) {
            let id = match self.ids.get(unit) {
                Some(&id) if id <= END => {
                    self.n_special += 1;
                    continue;
                }
                Some(&id) => id,
                None => {
                    check_word(unit)?;
                    let id = self.words.len() as u32;
                    self.ids.insert(unit.to_owned(), id);
                    self.words.push(unit.to_owned());
                    id
                }
            };
            self.n_tokens += 1;
            self.count(&mut gram, id);
        }
        self.count(&mut gram, END);
        self.n_sentences += 1;
        Ok(())
    }

    fn count(&mut self, gram: &mut Gram, id: u32) {
        gram.copy_within(..self.order - 1, 1);
        gram[0] = id;
        *self.counts.entry(*gram).or_default() += 1;
    }

    /// Returns the words by their id, and the counts sorted by the words of the n-grams, the last word first.
    pub(super) fn finish(self) -> (Vec<String>, Vec<(Gram, u64)>) {
        let mut counts: Vec<(Gram, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable();
        (self.words, counts)
    }
}
