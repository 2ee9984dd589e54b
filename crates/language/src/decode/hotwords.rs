//! Words that a search should find more easily.

use super::trie::{NOWHERE, ROOT, Trie};

/// Words that raise the score of a text.
///
/// As in `pyctcdecode`, a phrase stands for its words: each of them raises a text by the weight each time it is said,
/// also without the others. The beginning of a word raises a hypothesis by its share of the shortest hotword that begins
/// so: after 3 of 6 characters by half of the weight. The share is lost when the word ends differently.
#[derive(Clone, Debug)]
pub struct Hotwords {
    trie: Trie,
    /// Weight of each word.
    weights: Vec<f64>,
    /// What each character is worth at each node of the tree.
    rates: Vec<f64>,
}

impl Hotwords {
    /// Weight of `pyctcdecode`, as a natural logarithm.
    pub const WEIGHT: f64 = 10.0;

    /// Makes hotwords of phrases with one weight.
    pub fn new<T: AsRef<str>>(phrases: impl IntoIterator<Item = T>, weight: f64) -> Self {
        Self::weighted(phrases.into_iter().map(|phrase| (phrase, weight)))
    }

    /// Makes hotwords of phrases, each with its weight. Of equal words the highest weight counts.
    ///
    /// # Panics
    /// When a weight is not finite.
    pub fn weighted<T: AsRef<str>>(phrases: impl IntoIterator<Item = (T, f64)>) -> Self {
        let phrases: Vec<(T, f64)> = phrases.into_iter().collect();
        assert!(phrases.iter().all(|(_, weight)| weight.is_finite()), "a weight of a hotword is not finite");
        let mut words: Vec<(&str, f64)> = phrases
            .iter()
            .flat_map(|(phrase, weight)| phrase.as_ref().split_whitespace().map(move |word| (word, *weight)))
            .collect();
        words.sort_by(|a, b| a.0.cmp(b.0).then(b.1.total_cmp(&a.1)));
        words.dedup_by_key(|(word, _)| *word);
        let trie = Trie::new(words.iter().map(|&(word, _)| word).zip(0..));
        let weights = words.iter().map(|&(_, weight)| weight).collect();
        words.sort_by_key(|(word, _)| word.chars().count());
        let mut rates = vec![f64::NAN; trie.n_nodes()];
        for (word, weight) in words {
            let mut node = ROOT;
            for character in word.chars() {
                node = trie.step(node, character);
                let rate = &mut rates[node as usize];
                if rate.is_nan() {
                    *rate = weight / word.chars().count() as f64;
                }
            }
        }
        Self { trie, weights, rates }
    }

    pub(super) fn step(&self, node: u32, character: char) -> u32 {
        self.trie.step(node, character)
    }

    /// Returns what a whole word is worth.
    pub(super) fn whole(&self, node: u32) -> f64 {
        self.trie.word(node).map_or(0.0, |word| self.weights[word as usize])
    }

    /// Returns what the beginning of a word is worth; nothing if no hotword begins so.
    pub(super) fn partial(&self, node: u32, n_characters: u32) -> Option<f64> {
        (node != NOWHERE).then(|| self.rates[node as usize] * f64::from(n_characters))
    }
}
