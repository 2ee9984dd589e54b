//! A reference and a hypothesis side by side.

use std::fmt;

use serde::Serialize;

use super::counts::ErrorCounts;
use super::edits::{Edit, edits};

/// Kind of a pair in an [`Alignment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reference and hypothesis have the same unit.
    Hit,
    /// The hypothesis has another unit.
    Substitution,
    /// The hypothesis lacks the unit.
    Deletion,
    /// The reference does not have the unit.
    Insertion,
}

/// One unit of the reference, one of the hypothesis, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Kind of the pair.
    pub operation: Operation,
    /// Unit of the reference; `None` for an insertion.
    pub reference: Option<String>,
    /// Unit of the hypothesis; `None` for a deletion.
    pub hypothesis: Option<String>,
}

/// Minimal alignment of a reference and a hypothesis, in words or in characters.
///
/// `Display` shows it in three lines: the reference, the hypothesis, and the letters S, D and I under the errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Alignment {
    /// Pairs in the order of the texts.
    pub pairs: Vec<Pair>,
}

impl Alignment {
    /// Aligns words. Runs of white space separate words.
    pub fn words(reference: &str, hypothesis: &str) -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        Self::new(words(reference), words(hypothesis))
    }

    /// Aligns Unicode code points. White space at both ends is removed.
    pub fn characters(reference: &str, hypothesis: &str) -> Self {
        let characters = |text: &str| text.trim().chars().map(String::from).collect::<Vec<_>>();
        Self::new(characters(reference), characters(hypothesis))
    }

    fn new(reference: Vec<String>, hypothesis: Vec<String>) -> Self {
        let edits = edits(&reference, &hypothesis);
        let (mut reference, mut hypothesis) = (reference.into_iter(), hypothesis.into_iter());
        let mut pair = |edit: Edit| match edit {
            Edit::Hit => (Operation::Hit, reference.next(), hypothesis.next()),
            Edit::Substitution => (Operation::Substitution, reference.next(), hypothesis.next()),
            Edit::Deletion => (Operation::Deletion, reference.next(), None),
            Edit::Insertion => (Operation::Insertion, None, hypothesis.next()),
        };
        let pairs = edits.into_iter().map(|edit| {
            let (operation, reference, hypothesis) = pair(edit);
            Pair { operation, reference, hypothesis }
        });
        Self { pairs: pairs.collect() }
    }

    /// Counts the kinds of pairs.
    pub fn counts(&self) -> ErrorCounts {
        let count = |operation| self.pairs.iter().filter(|pair| pair.operation == operation).count() as u64;
        ErrorCounts {
            hits: count(Operation::Hit),
            substitutions: count(Operation::Substitution),
            deletions: count(Operation::Deletion),
            insertions: count(Operation::Insertion),
        }
    }

    /// Formats the alignment in blocks of three lines, each at most `width` characters wide where its units permit.
    pub fn in_blocks(&self, width: usize) -> String {
        const HEAD: usize = 5;
        let mut output = String::new();
        let mut lines = [String::from("REF:"), String::from("HYP:"), String::from("    ")];
        let mut used = HEAD - 1;
        for pair in &self.pairs {
            let (mark, [reference, hypothesis]) = cells(pair);
            let size = reference.chars().count().max(hypothesis.chars().count());
            if used > HEAD - 1 && used + 1 + size > width {
                flush(&mut output, &mut lines);
                used = HEAD - 1;
            }
            for (line, cell) in lines.iter_mut().zip([reference.as_str(), hypothesis.as_str(), mark]) {
                *line += &format!(" {cell:size$}");
            }
            used += 1 + size;
        }
        flush(&mut output, &mut lines);
        output
    }
}

impl fmt::Display for Alignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_blocks(usize::MAX))
    }
}

/// Returns the mark under a pair, and its two units; asterisks stand for a missing unit.
fn cells(pair: &Pair) -> (&'static str, [String; 2]) {
    let mark = match pair.operation {
        Operation::Hit => " ",
        Operation::Substitution => "S",
        Operation::Deletion => "D",
        Operation::Insertion => "I",
    };
    let stars = |other: &Option<String>| "*".repeat(other.as_ref().map_or(1, |other| other.chars().count()));
    let cell = |unit: &Option<String>, other| unit.clone().unwrap_or_else(|| stars(other));
    (mark, [cell(&pair.reference, &pair.hypothesis), cell(&pair.hypothesis, &pair.reference)])
}

fn flush(output: &mut String, lines: &mut [String; 3]) {
    for (line, head) in lines.iter_mut().zip(["REF:", "HYP:", "    "]) {
        *output += line.trim_end();
        output.push('\n');
        head.clone_into(line);
    }
}
