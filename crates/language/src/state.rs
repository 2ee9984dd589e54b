//! The context of the next word.

use std::hash::{Hash, Hasher};

/// Highest order of a model: the longest n-gram has this many words.
pub const ORDER_MAX: usize = 6;

/// Context in which the next word is scored: the last words, as far as they matter to the model.
///
/// A word that no longer matters is left out: when the model has no n-gram that begins with "the ship", the state after
/// "the ship" is that of "ship". So two states are equal exactly when the model scores every continuation equally by its
/// own structure, and a search may join hypotheses with equal states. The semantics are those of KenLM.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Word ids, the newest first.
    pub(crate) words: [u32; ORDER_MAX - 1],
    /// Back-off of the n-gram of the first `i + 1` words.
    pub(crate) backoffs: [f32; ORDER_MAX - 1],
    pub(crate) length: u8,
}

impl State {
    /// Returns the ids of the words of the context, the newest first.
    pub fn words(&self) -> &[u32] {
        &self.words[..usize::from(self.length)]
    }

    /// Returns the sum of the back-offs of all n-grams of the context that are longer than `length - 1` words: what
    /// a word costs of which only an n-gram of `length` words is known.
    pub(crate) fn backed_off(&self, length: usize) -> f32 {
        self.backoffs[..usize::from(self.length)].iter().skip(length - 1).sum()
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.words().hash(state);
    }
}
