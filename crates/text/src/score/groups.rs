//! Groups of utterances, and rankings of errors.

use std::collections::BTreeMap;

use serde::Serialize;

use super::alignment::{Alignment, Operation};
use super::counts::ErrorCounts;

/// Errors of a group of utterances, such as those of one speaker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Name of the group: a speaker, or a range of lengths.
    pub name: String,
    /// Number of utterances.
    pub utterances: usize,
    /// Errors in words.
    pub words: ErrorCounts,
    /// Errors in characters.
    pub characters: ErrorCounts,
}

/// A unit of the reference that was recognized as another unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confusion {
    /// Unit of the reference.
    pub reference: String,
    /// Unit of the hypothesis.
    pub hypothesis: String,
    /// How often this happened.
    pub count: u64,
}

/// A unit that was deleted or inserted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ranked {
    /// The unit.
    pub text: String,
    /// How often this happened.
    pub count: u64,
    /// How often the references have the unit.
    pub occurrences: u64,
}

/// Rankings of the errors of many alignments.
#[derive(Default)]
pub(super) struct Ranking {
    confusions: BTreeMap<(String, String), u64>,
    deletions: BTreeMap<String, u64>,
    insertions: BTreeMap<String, u64>,
    occurrences: BTreeMap<String, u64>,
}

impl Ranking {
    pub(super) fn add(&mut self, alignment: &Alignment) {
        for pair in &alignment.pairs {
            if let Some(reference) = &pair.reference {
                *self.occurrences.entry(reference.clone()).or_default() += 1;
            }
            let units = (pair.reference.clone(), pair.hypothesis.clone());
            match (pair.operation, units) {
                (Operation::Substitution, (Some(reference), Some(hypothesis))) => {
                    *self.confusions.entry((reference, hypothesis)).or_default() += 1;
                }
                (Operation::Deletion, (Some(unit), _)) => *self.deletions.entry(unit).or_default() += 1,
                (Operation::Insertion, (_, Some(unit))) => *self.insertions.entry(unit).or_default() += 1,
                _ => {}
            }
        }
    }

    /// Returns the most frequent confusions; equally frequent ones in alphabetical order.
    pub(super) fn confusions(&self, most: usize) -> Vec<Confusion> {
        let mut list: Vec<_> = self.confusions.iter().collect();
        list.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let make = |((reference, hypothesis), count): (&(String, String), &u64)| Confusion {
            reference: reference.clone(),
            hypothesis: hypothesis.clone(),
            count: *count,
        };
        list.into_iter().take(most).map(make).collect()
    }

    /// Returns the units that were deleted most often.
    pub(super) fn deletions(&self, most: usize) -> Vec<Ranked> {
        self.ranked(&self.deletions, most)
    }

    /// Returns the units that were inserted most often.
    pub(super) fn insertions(&self, most: usize) -> Vec<Ranked> {
        self.ranked(&self.insertions, most)
    }

    fn ranked(&self, counts: &BTreeMap<String, u64>, most: usize) -> Vec<Ranked> {
        let mut list: Vec<_> = counts.iter().collect();
        list.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let occurrences = |text: &String| self.occurrences.get(text).copied().unwrap_or_default();
        let make = |(text, count): (&String, &u64)| Ranked {
            text: text.clone(),
            count: *count,
            occurrences: occurrences(text),
        };
        list.into_iter().take(most).map(make).collect()
    }
}
