//! A text as ids, with the letters that a vocabulary does not have.

use crate::characters::CharTokenizer;

/// A text as ids, and which letters of it are unknown, both in the order of the text.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    pub(crate) unknown: Vec<char>,
}

impl Encoded {
    /// Notes a letter that is not known.
    pub(crate) fn push_unknown(&mut self, letter: char) {
        self.ids.push(CharTokenizer::UNKNOWN);
        self.unknown.push(letter);
    }
}
