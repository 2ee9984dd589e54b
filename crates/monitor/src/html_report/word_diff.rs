//! Differences of two texts, word by word.

/// Longest texts that are compared, in words. The table of the comparison grows with the square.
const WORDS_MAX: usize = 400;

/// Word of either text or of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// The word is in both texts.
    Both(&'a str),
    /// Only the reference has the word.
    Missing(&'a str),
    /// Only the output has the word.
    Added(&'a str),
}

/// Compares the words of `output` with those of the reference `truth` along their longest common subsequence. Returns
/// `None` for texts that are too long.
pub(super) fn words<'a>(truth: &'a str, output: &'a str) -> Option<Vec<Word<'a>>> {
    let [truth, output] = [truth, output].map(|text| text.split_whitespace().collect::<Vec<_>>());
    if truth.len().max(output.len()) > WORDS_MAX {
        return None;
    }
    // Length of the longest common subsequence of the words from `i` and from `j` on.
    let mut common = vec![vec![0u16; output.len() + 1]; truth.len() + 1];
    for i in (0..truth.len()).rev() {
        for j in (0..output.len()).rev() {
            common[i][j] = match truth[i] == output[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < truth.len() || j < output.len() {
        if i < truth.len() && j < output.len() && truth[i] == output[j] {
            found.push(Word::Both(truth[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == output.len() || (i < truth.len() && common[i + 1][j] >= common[i][j + 1]) {
            found.push(Word::Missing(truth[i]));
            i += 1;
        } else {
            found.push(Word::Added(output[j]));
            j += 1;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_texts_can_be_read_from_their_difference() {
        for (truth, output) in [
            ("", ""),
            ("a b c", "a b c"),
            ("a b c", ""),
            ("", "a"),
            ("the cat sat", "a cat sat down"),
            ("a a b", "b a a"),
        ] {
            let found = words(truth, output).unwrap();
            let side =
                |keep: fn(Word<'_>) -> Option<&str>| -> Vec<_> { found.iter().filter_map(|w| keep(*w)).collect() };
            let reference = side(|word| if let Word::Both(w) | Word::Missing(w) = word { Some(w) } else { None });
            let said = side(|word| if let Word::Both(w) | Word::Added(w) = word { Some(w) } else { None });
            assert_eq!((reference.join(" ").as_str(), said.join(" ").as_str()), (truth, output));
        }
        let found = words("the cat", "the cap").unwrap();
        assert_eq!(found, [Word::Both("the"), Word::Missing("cat"), Word::Added("cap")]);
        assert_eq!(words(&"a ".repeat(500), "a"), None);
    }
}
