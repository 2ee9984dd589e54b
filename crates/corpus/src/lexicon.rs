//! Words of the built-in corpus, in spelling and in phones.

use crate::phone::{Phone, phone};
use plimsoll_core::Key;
use std::sync::LazyLock;

/// Word of a lexicon: its spelling and its phones.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Spelling of the word in lower-case letters.
    pub spelling: &'static str,
    pub(super) phones: Vec<&'static Phone>,
}

/// Words that can be spoken, in a fixed order. Sentences refer to a word by its index.
#[derive(Clone, Debug, PartialEq)]
pub struct Lexicon {
    words: Vec<Word>,
}

impl Lexicon {
    /// Returns the lexicon of English-like words, which does not depend on the seed.
    pub fn english() -> &'static Self {
        static ENGLISH: LazyLock<Lexicon> = LazyLock::new(|| Lexicon {
            words: ENGLISH_WORDS
                .iter()
                .map(|(spelling, phones)| Word { spelling, phones: phones_of(phones) })
                .collect(),
        });
        &ENGLISH
    }

    /// Returns every word of the lexicon, in the order of the indices of words.
    pub fn words(&self) -> &[Word] {
        &self.words
    }
}

/// Draws a sentence of three to seven of `n_words` words, given by their indices; shorter sentences are more frequent.
///
/// Each word is drawn independently, so a model cannot learn an order of words.
pub(super) fn sentence(n_words: usize, key: Key) -> Vec<usize> {
    let length = 3 + key.with("length").below(5).min(key.with("short").below(5));
    (0..length).map(|place| key.with("word").at(place).below(n_words as u64) as usize).collect()
}

fn phones_of(names: &str) -> Vec<&'static Phone> {
    names.split(' ').map(|name| phone(name).expect("the table of words names only phones that exist")).collect()
}

const ENGLISH_WORDS: &[(&str, &str)] = &[
    // Digits.
    ("zero", "z ih r ow"),
    ("one", "w ah n"),
    ("two", "t uw"),
    ("three", "th r iy"),
    ("four", "f ao r"),
    ("five", "f ay v"),
    ("six", "s ih k s"),
    ("seven", "s eh v ax n"),
    ("eight", "ey t"),
    ("nine", "n ay n"),
    // Days.
    ("monday", "m ah n d ey"),
    ("tuesday", "t uw z d ey"),
    ("wednesday", "w eh n z d ey"),
    ("thursday", "th er z d ey"),
    ("friday", "f r ay d ey"),
    ("saturday", "s ae t er d ey"),
    ("sunday", "s ah n d ey"),
    // Colors.
    ("red", "r eh d"),
    ("green", "g r iy n"),
    ("blue", "b l uw"),
    ("yellow", "y eh l ow"),
    ("black", "b l ae k"),
    ("white", "w ay t"),
    ("brown", "b r aw n"),
    ("purple", "p er p ax l"),
    ("orange", "ao r ax n jh"),
    // Animals.
    ("dog", "d ao g"),
    ("cat", "k ae t"),
    ("fish", "f ih sh"),
    ("horse", "hh ao r s"),
    ("rabbit", "r ae b ih t"),
    ("chicken", "ch ih k ax n"),
    ("sheep", "sh iy p"),
    ("monkey", "m ah ng k iy"),
    ("tiger", "t ay g er"),
    ("zebra", "z iy b r ax"),
    // Verbs.
    ("go", "g ow"),
    ("take", "t ey k"),
    ("make", "m ey k"),
    ("jump", "jh ah m p"),
    ("sing", "s ih ng"),
    ("watch", "w aa ch"),
    ("push", "p uh sh"),
    ("open", "ow p ax n"),
    ("follow", "f aa l ow"),
    ("measure", "m eh zh er"),
    ("bring", "b r ih ng"),
    ("teach", "t iy ch"),
    ("enjoy", "eh n jh oy"),
    // Things and places.
    ("house", "hh aw s"),
    ("water", "w ao t er"),
    ("garden", "g aa r d ax n"),
    ("bread", "b r eh d"),
    ("book", "b uh k"),
    ("village", "v ih l ih jh"),
    ("music", "m y uw z ih k"),
    ("boy", "b oy"),
    ("moon", "m uw n"),
    ("mother", "m ah dh er"),
    ("hammer", "hh ae m er"),
    ("voice", "v oy s"),
    ("cloud", "k l aw d"),
    ("paper", "p ey p er"),
    ("window", "w ih n d ow"),
    // Small words.
    ("this", "dh ih s"),
    ("under", "ah n d er"),
    ("about", "ax b aw t"),
    ("yes", "y eh s"),
    ("never", "n eh v er"),
    ("good", "g uh d"),
    ("young", "y ah ng"),
    ("happy", "hh ae p iy"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phone::PHONES;
    use std::collections::HashSet;

    #[test]
    fn words_are_lower_case_and_differ_in_spelling_and_phones() {
        let words = Lexicon::english().words();
        assert!((60..=80).contains(&words.len()), "{}", words.len());
        assert!(words.iter().all(|w| w.spelling.bytes().all(|b| b.is_ascii_lowercase())));
        let spellings: HashSet<_> = words.iter().map(|w| w.spelling).collect();
        let sounds: HashSet<Vec<_>> = words.iter().map(|w| w.phones.iter().map(|p| p.name).collect()).collect();
        assert_eq!((spellings.len(), sounds.len()), (words.len(), words.len()));
    }

    #[test]
    fn every_phone_is_used() {
        let used: HashSet<_> =
            Lexicon::english().words().iter().flat_map(|w| w.phones.iter().map(|p| p.name)).collect();
        let idle: Vec<_> = PHONES.iter().map(|p| p.name).filter(|name| !used.contains(name)).collect();
        assert!(idle.is_empty(), "{idle:?}");
    }

    #[test]
    fn sentences_reach_every_word_and_length() {
        let sentences: Vec<_> = (0..500).map(|i| sentence(70, Key::new(5).at(i))).collect();
        let lengths: HashSet<_> = sentences.iter().map(Vec::len).collect();
        let words: HashSet<_> = sentences.iter().flatten().copied().collect();
        assert_eq!((lengths, words.len()), ((3..=7).collect(), 70));
    }
}
