//! The prefixes of a search as a tree: a longer hypothesis costs one node instead of a copy.

use rustc_hash::FxHashMap;

use super::scorer::FusionState;

/// Number of the empty prefix in every tree.
pub(super) const ROOT: u32 = 0;

struct Node {
    parent: u32,
    token: u32,
    fusion: FusionState,
}

/// Tree of the prefixes of a search, in which a number stands for each prefix. Equal prefixes always have the same
/// number.
pub(super) struct PrefixTree {
    nodes: Vec<Node>,
    children: FxHashMap<(u32, u32), u32>,
}

impl PrefixTree {
    /// Makes a tree of the empty prefix. It has the blank in place of a last token, which no text token equals.
    pub(super) fn new(start: FusionState) -> Self {
        Self { nodes: vec![Node { parent: ROOT, token: 0, fusion: start }], children: FxHashMap::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    pub(super) fn fusion(&self, node: u32) -> &FusionState {
        &self.nodes[node as usize].fusion
    }

    pub(super) fn child(&self, node: u32, token: u32) -> Option<u32> {
        self.children.get(&(node, token)).copied()
    }

    /// Returns the number of the prefix `node` extended by `token`, and adds it to the tree if needed.
    pub(super) fn extend(&mut self, node: u32, token: u32, fusion: FusionState) -> u32 {
        *self.children.entry((node, token)).or_insert_with(|| {
            self.nodes.push(Node { parent: node, token, fusion });
            (self.nodes.len() - 1) as u32
        })
    }

    pub(super) fn tokens(&self, mut node: u32) -> Vec<u32> {
        let mut tokens = Vec::new();
        while node != ROOT {
            let Node { parent, token, .. } = self.nodes[node as usize];
            tokens.push(token);
            node = parent;
        }
        tokens.reverse();
        tokens
    }
}
