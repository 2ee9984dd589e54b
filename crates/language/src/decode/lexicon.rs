//! Words that may be said.

use super::trie::Trie;

/// List of the only words that a search may find.
///
/// ```
/// use plimsoll_language::Lexicon;
///
/// let digits = Lexicon::new(["one", "two", "three"]);
/// assert_eq!(digits.len(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Lexicon {
    pub(super) trie: Trie,
    n_words: usize,
}

impl Lexicon {
    /// Makes a lexicon of words. Texts with white space count as several words.
    pub fn new<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> Self {
        let texts: Vec<T> = words.into_iter().collect();
        let mut words: Vec<&str> = texts.iter().flat_map(|text| text.as_ref().split_whitespace()).collect();
        words.sort_unstable();
        words.dedup();
        Self { trie: Trie::new(words.iter().copied().zip(0..)), n_words: words.len() }
    }

    /// Returns the number of different words.
    pub fn len(&self) -> usize {
        self.n_words
    }

    /// Returns whether there is no word: then a search finds only the empty text.
    pub fn is_empty(&self) -> bool {
        self.n_words == 0
    }
}
