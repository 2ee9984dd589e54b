//! Counts of errors by jiwer's definitions.

use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use super::edits::{Edit, edits};

/// Counts of an alignment between a reference and a hypothesis. Counts of several texts are added before the rate is
/// taken.
///
/// A unit is a word or a character, depending on the constructor.
///
/// ```
/// use plimsoll_text::score::ErrorCounts;
///
/// let texts = [("one two", "one too"), ("three", "three")];
/// let words: ErrorCounts = texts.iter().map(|(truth, found)| ErrorCounts::words(truth, found)).sum();
/// assert_eq!(words.rate(), 1.0 / 3.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCounts {
    /// Number of units that are equal in reference and hypothesis.
    pub hits: u64,
    /// Number of units of the reference that the hypothesis replaced by another unit.
    pub substitutions: u64,
    /// Number of units of the reference that are missing in the hypothesis.
    pub deletions: u64,
    /// Number of units of the hypothesis that the reference does not have.
    pub insertions: u64,
}

impl ErrorCounts {
    /// Counts errors in words. Runs of white space separate words; case and punctuation count.
    pub fn words(reference: &str, hypothesis: &str) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Self::from_edits(&edits(&words(reference), &words(hypothesis)))
    }

    /// Counts errors in Unicode code points. White space at both ends is removed; spaces inside count.
    pub fn characters(reference: &str, hypothesis: &str) -> Self {
        let characters = |text: &str| text.trim().chars().collect::<Vec<_>>();
        Self::from_edits(&edits(&characters(reference), &characters(hypothesis)))
    }

    /// Counts the kinds of edits.
    pub(super) fn from_edits(edits: &[Edit]) -> Self {
        let mut counts = Self::default();
        for edit in edits {
            match edit {
                Edit::Hit => counts.hits += 1,
                Edit::Substitution => counts.substitutions += 1,
                Edit::Deletion => counts.deletions += 1,
                Edit::Insertion => counts.insertions += 1,
            }
        }
        counts
    }

    /// Returns the number of errors: substitutions, deletions and insertions.
    pub fn errors(&self) -> u64 {
        self.substitutions + self.deletions + self.insertions
    }

    /// Returns the number of units in the reference.
    pub fn reference_length(&self) -> u64 {
        self.hits + self.substitutions + self.deletions
    }

    /// Computes the error rate: errors divided by the units of the reference. 0 is perfect, and insertions can raise it
    /// above 1.
    ///
    /// With an empty reference the rate is the number of insertions, as in jiwer.
    pub fn rate(&self) -> f64 {
        let errors = self.errors() as f64;
        if self.reference_length() == 0 { errors } else { errors / self.reference_length() as f64 }
    }
}

impl Add for ErrorCounts {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            hits: self.hits + other.hits,
            substitutions: self.substitutions + other.substitutions,
            deletions: self.deletions + other.deletions,
            insertions: self.insertions + other.insertions,
        }
    }
}

impl Sum for ErrorCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_match_jiwer() {
        // reference, hypothesis, (hits, substitutions, deletions, insertions) of words
        for (reference, hypothesis, expected) in [
            ("hello world", "hello duck", (1, 1, 0, 0)),
            ("short one here", "shoe order one", (0, 3, 0, 0)),
            ("a b c", "", (0, 0, 3, 0)),
            ("", "a b", (0, 0, 0, 2)),
            ("  a   b ", "a b", (2, 0, 0, 0)),
            ("a", "a a a", (1, 0, 0, 2)),
        ] {
            let c = ErrorCounts::words(reference, hypothesis);
            let found = (c.hits, c.substitutions, c.deletions, c.insertions);
            if reference.starts_with("short") {
                // Several alignments have the same cost: only the number of errors is unique.
                assert_eq!(c.substitutions + c.deletions + c.insertions, 3);
            } else {
                assert_eq!(found, expected, "{reference:?} {hypothesis:?}");
            }
        }
    }

    #[test]
    fn rates_are_pooled_and_can_exceed_one() {
        let long = ErrorCounts::words("a b c d e f g h i j", "a b c d e f g h i j");
        let short = ErrorCounts::words("a", "b c");
        assert_eq!((short.rate(), (long + short).rate()), (2.0, 2.0 / 11.0));
        assert_eq!(ErrorCounts::words("", "a b").rate(), 2.0);
        assert_eq!(ErrorCounts::words("", "").rate(), 0.0);
    }

    #[test]
    fn characters_are_code_points_including_spaces() {
        let c = ErrorCounts::characters(" हांव घरा ", "हांव घर");
        assert_eq!((c.reference_length(), c.deletions), (8, 1));
        assert_eq!(ErrorCounts::characters("ab", "a b").insertions, 1);
    }
}
