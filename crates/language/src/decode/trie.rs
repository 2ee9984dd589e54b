//! Words as a tree of their bytes.

/// Node that no word leads to.
pub(super) const NOWHERE: u32 = u32::MAX;
/// Node of the empty beginning.
pub(super) const ROOT: u32 = 0;

#[derive(Clone, Copy, Debug)]
struct Node {
    first_child: u32,
    n_children: u16,
    byte: u8,
    /// Number of the word that ends here; [`NOWHERE`] if none does.
    word: u32,
}

/// Words as a tree. The children of a node lie side by side, sorted by their byte.
#[derive(Clone, Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
}

impl Trie {
    /// Makes a tree of words with their numbers. Of equal words the first one counts; empty words are left out.
    pub(super) fn new<'a>(words: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut words: Vec<(&[u8], u32)> = words.into_iter().map(|(word, number)| (word.as_bytes(), number)).collect();
        words.retain(|(word, _)| !word.is_empty());
        words.sort_by_key(|(word, _)| *word);
        words.dedup_by_key(|(word, _)| *word);
        let mut nodes = vec![Node { first_child: 0, n_children: 0, byte: 0, word: NOWHERE }];
        // Words below each node, and how many bytes lead to it.
        let mut below = vec![(0, words.len(), 0)];
        let mut at = 0;
        while at < nodes.len() {
            let (mut low, high, depth) = below[at];
            if low < high && words[low].0.len() == depth {
                nodes[at].word = words[low].1;
                low += 1;
            }
            nodes[at].first_child = nodes.len() as u32;
            while low < high {
                let byte = words[low].0[depth];
                let end = low + words[low..high].partition_point(|(word, _)| word[depth] <= byte);
                nodes.push(Node { first_child: 0, n_children: 0, byte, word: NOWHERE });
                nodes[at].n_children += 1;
                below.push((low, end, depth + 1));
                low = end;
            }
            at += 1;
        }
        Self { nodes }
    }

    /// Returns the node of a beginning with one more character.
    pub(super) fn step(&self, node: u32, character: char) -> u32 {
        let mut buffer = [0; 4];
        character.encode_utf8(&mut buffer).bytes().fold(node, |node, byte| self.child(node, byte))
    }

    fn child(&self, node: u32, byte: u8) -> u32 {
        let Some(node) = self.nodes.get(node as usize) else { return NOWHERE };
        let start = node.first_child as usize;
        let children = &self.nodes[start..start + usize::from(node.n_children)];
        children.binary_search_by_key(&byte, |child| child.byte).map_or(NOWHERE, |index| (start + index) as u32)
    }

    /// Returns the number of the word that ends at a node.
    pub(super) fn word(&self, node: u32) -> Option<u32> {
        self.nodes.get(node as usize).map(|node| node.word).filter(|&word| word != NOWHERE)
    }

    pub(super) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_words_and_beginnings() {
        let words = ["ship", "shi", "hull", "véka", "", "ship"];
        let trie = Trie::new(words.iter().copied().zip(10..));
        let node = |text: &str| text.chars().fold(ROOT, |node, character| trie.step(node, character));
        for (text, expected) in [("ship", Some(10)), ("shi", Some(11)), ("hull", Some(12)), ("véka", Some(13))] {
            assert_eq!(trie.word(node(text)), expected, "{text}");
        }
        for text in ["", "sh", "vé"] {
            assert_ne!(node(text), NOWHERE);
            assert_eq!(trie.word(node(text)), None, "{text}");
        }
        for text in ["x", "shipx", "ve"] {
            assert_eq!(node(text), NOWHERE, "{text}");
        }
        assert_eq!(Trie::new([]).step(ROOT, 'a'), NOWHERE);
    }
}
