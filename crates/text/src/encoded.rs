//! Token ids of a text, with the characters that the vocabulary does not contain.

use crate::characters::CharTokenizer;

/// Token ids of a text and its unknown characters, each list in the order of the text.
#[derive(Default)]
pub(crate) struct Encoded {
    pub(crate) ids: Vec<u32>,
    pub(crate) unknown: Vec<char>,
}

impl Encoded {
    /// Appends the id for unknown characters to the token ids, and adds `character` to the list of unknown characters.
    pub(crate) fn push_unknown(&mut self, character: char) {
        self.ids.push(CharTokenizer::UNKNOWN);
        self.unknown.push(character);
    }
}
