//! The prefixes of a search as a tree: a longer hypothesis costs one node instead of a copy.

use std::collections::HashMap;

use super::BLANK;

/// The empty prefix.
pub(super) const ROOT: usize = 0;

/// Prefixes by number. Equal prefixes always have the same number.
pub(super) struct PrefixTree {
    /// Parent and last token of each prefix. The root is its own parent.
    nodes: Vec<(usize, u32)>,
    /// Only looked up, never iterated, so the order of the map cannot influence a result.
    children: HashMap<(usize, u32), usize>,
}

impl PrefixTree {
    pub(super) fn new() -> Self {
        Self { nodes: vec![(ROOT, BLANK)], children: HashMap::new() }
    }

    /// The prefix without its last token.
    pub(super) fn parent(&self, node: usize) -> usize {
        self.nodes[node].0
    }

    /// The prefix that is one `token` longer, if it exists.
    pub(super) fn child(&self, node: usize, token: u32) -> Option<usize> {
        self.children.get(&(node, token)).copied()
    }

    /// The prefix that is one `token` longer; created if needed.
    pub(super) fn extend(&mut self, node: usize, token: u32) -> usize {
        *self.children.entry((node, token)).or_insert_with(|| {
            self.nodes.push((node, token));
            self.nodes.len() - 1
        })
    }

    /// The tokens of a prefix.
    pub(super) fn tokens(&self, mut node: usize) -> Vec<u32> {
        let mut tokens = Vec::new();
        while node != ROOT {
            let (parent, token) = self.nodes[node];
            tokens.push(token);
            node = parent;
        }
        tokens.reverse();
        tokens
    }
}
