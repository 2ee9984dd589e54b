//! N-grams as lists, and the trait through which a model looks them up.

use std::cmp::Ordering;
use std::fmt::Debug;

/// What a model knows about an n-gram: its numbers, and where to look for longer n-grams that end with it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// Log-probability of the last word after the others, base 10.
    pub(crate) prob: f32,
    /// Back-off, base 10. The negative zero says that no n-gram begins with this one.
    pub(crate) backoff: f32,
    /// Place of the longer n-grams; its meaning belongs to the table.
    pub(crate) begin: u64,
    /// End of that place, for tables that need one.
    pub(crate) end: u64,
    /// Whether there are longer n-grams that end with this one.
    pub(crate) extends: bool,
}

/// Back-off of an n-gram that begins no longer n-gram.
pub(crate) const ENDS_HERE: f32 = -0.0;

/// Returns whether the back-off belongs to an n-gram that a state must keep.
pub(crate) fn continues(backoff: f32) -> bool {
    backoff.to_bits() != ENDS_HERE.to_bits()
}

/// N-grams of a model, looked up from the last word to the first.
pub(crate) trait NgramTable: Debug + Send + Sync {
    /// Looks up a word; the id is below the size of the vocabulary.
    fn unigram(&self, word: u32) -> Entry;

    /// Looks up an n-gram of `length` words, from 2 to the order without one. `shorter` is the entry of the same
    /// n-gram without its first word, which is `word`.
    fn longer(&self, length: usize, word: u32, shorter: &Entry) -> Option<Entry>;

    /// Looks up the log-probability of an n-gram of the highest order.
    fn longest(&self, word: u32, shorter: &Entry) -> Option<f32>;

    /// Lists all n-grams longer than a word, by order; nothing if the table cannot list them.
    fn list(&self) -> Option<Vec<NgramList>>;
}

/// N-grams of one order.
#[derive(Clone, Debug, Default)]
pub(crate) struct NgramList {
    pub(crate) order: usize,
    /// Words of each n-gram, the last word first.
    pub(crate) words: Vec<u32>,
    pub(crate) probs: Vec<f32>,
    /// Back-offs; empty for the highest order.
    pub(crate) backoffs: Vec<f32>,
}

impl NgramList {
    pub(crate) fn new(order: usize) -> Self {
        Self { order, ..Self::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.probs.len()
    }

    /// Returns the words of the n-gram at `index`, the last word first.
    pub(crate) fn gram(&self, index: usize) -> &[u32] {
        &self.words[index * self.order..(index + 1) * self.order]
    }

    pub(crate) fn push(&mut self, newest_first: impl Iterator<Item = u32>, prob: f32, backoff: Option<f32>) {
        self.words.extend(newest_first);
        self.probs.push(prob);
        self.backoffs.extend(backoff);
    }

    /// Sorts the n-grams by their words from the last to the first.
    pub(crate) fn sort(&mut self) {
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_unstable_by(|&a, &b| self.gram(a).cmp(self.gram(b)));
        let mut sorted = Self::new(self.order);
        sorted.words.reserve(self.words.len());
        for &index in &order {
            sorted.words.extend_from_slice(self.gram(index));
        }
        sorted.probs = order.iter().map(|&index| self.probs[index]).collect();
        if !self.backoffs.is_empty() {
            sorted.backoffs = order.iter().map(|&index| self.backoffs[index]).collect();
        }
        *self = sorted;
    }

    /// Finds an n-gram in a sorted list.
    pub(crate) fn find(&self, newest_first: &[u32]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.gram(middle).cmp(newest_first) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// What a model consists of, before it is laid out for lookups.
#[derive(Clone, Debug)]
pub(crate) struct ModelData {
    /// Words by their id. The first is the unknown word.
    pub(crate) words: Vec<String>,
    /// Log-probabilities and back-offs of the words.
    pub(crate) unigrams: Vec<(f32, f32)>,
    /// N-grams of two words, of three words and so on.
    pub(crate) longer: Vec<NgramList>,
    /// Whether the units are characters.
    pub(crate) characters: bool,
}
