//! The prefixes of a search as one tree, so that a longer hypothesis costs one node and no copy.

use std::collections::HashMap;

use super::BLANK;

/// The empty prefix.
pub(super) const ROOT: usize = 0;

/// Prefixes by number. Equal prefixes have equal numbers, however a search came to them.
pub(super) struct PrefixTree {
    /// Parent and last token of each prefix; the root stands in for its own parent.
    nodes: Vec<(usize, u32)>,
    /// Only ever looked up and never walked through, so its order cannot reach a result.
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

    /// The prefix that is one `token` longer, if it has ever been needed.
    pub(super) fn child(&self, node: usize, token: u32) -> Option<usize> {
        self.children.get(&(node, token)).copied()
    }

    /// The prefix that is one `token` longer.
    pub(super) fn extend(&mut self, node: usize, token: u32) -> usize {
        *self.children.entry((node, token)).or_insert_with(|| {
            self.nodes.push((node, token));
            self.nodes.len() - 1
        })
    }

    /// The text of a prefix.
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
