//! The prefixes of a search as a tree: a longer hypothesis costs one node instead of a copy.

use std::collections::HashMap;

use super::BLANK;

/// Number of the empty prefix in every tree.
pub(super) const ROOT: usize = 0;

/// Tree of the prefixes of a search, in which a number stands for each prefix. Equal prefixes always have the same
/// number.
pub(super) struct PrefixTree {
    /// Parent and last token of each prefix. The root is its own parent.
    nodes: Vec<(usize, u32)>,
    /// Number of each longer prefix, by parent and token. The map is only looked up, never iterated, so its order
    /// cannot influence a result.
    children: HashMap<(usize, u32), usize>,
}

impl PrefixTree {
    pub(super) fn new() -> Self {
        Self { nodes: vec![(ROOT, BLANK)], children: HashMap::new() }
    }

    /// Returns the number of the prefix `node` without its last token.
    pub(super) fn parent(&self, node: usize) -> usize {
        self.nodes[node].0
    }

    /// Returns the number of the prefix `node` extended by `token`; `None` if the tree does not have it.
    pub(super) fn child(&self, node: usize, token: u32) -> Option<usize> {
        self.children.get(&(node, token)).copied()
    }

    /// Returns the number of the prefix `node` extended by `token`, and adds it to the tree if needed.
    pub(super) fn extend(&mut self, node: usize, token: u32) -> usize {
        *self.children.entry((node, token)).or_insert_with(|| {
            self.nodes.push((node, token));
            self.nodes.len() - 1
        })
    }

    /// Returns the tokens of the prefix with number `node`.
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
