//! Comparison of two systems on the same test set.

use std::collections::HashMap;

use serde::Serialize;

use super::bootstrap::{Interval, ResampleUnit, Units, ends, interval, resample};
use super::counts::ErrorCounts;
use super::report::{ReportOptions, ScoredUtterance};

/// Error: two test sets are not the same.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// One set lacks an utterance of the other, or has it twice.
    #[error("utterance `{id}` is not exactly once in both sets")]
    NotPaired {
        /// Name of the utterance.
        id: String,
    },
    /// The two sets have different references for an utterance.
    #[error("utterance `{id}` has two references: `{a}` and `{b}`")]
    References {
        /// Name of the utterance.
        id: String,
        /// Reference in the first set.
        a: String,
        /// Reference in the second set.
        b: String,
    },
}

/// Difference of two systems in one error rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Rate of system A.
    pub a: Interval,
    /// Rate of system B.
    pub b: Interval,
    /// Rate of A less that of B: below 0 if A has fewer errors.
    pub difference: f64,
    /// Lower end of the interval of the difference.
    pub low: f64,
    /// Upper end of the interval of the difference.
    pub high: f64,
    /// Probability that A is better: the share of drawn sets on which A has the lower rate. Equal rates count half.
    pub a_better: f64,
}

/// An utterance on which two systems differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Name of the utterance.
    pub id: String,
    /// Text that was said.
    pub reference: String,
    /// Text that A recognized.
    pub a: String,
    /// Text that B recognized.
    pub b: String,
    /// Errors of A in words.
    pub a_errors: u64,
    /// Errors of B in words.
    pub b_errors: u64,
}

/// Comparison of two systems on the same test set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Difference in words.
    pub words: Difference,
    /// Difference in characters.
    pub characters: Difference,
    /// What was drawn for the intervals.
    pub resampled: ResampleUnit,
    /// Number of these in the set. An interval of a few says little.
    pub drawn: usize,
    /// Utterances whose errors in words differ most, the largest difference first.
    pub changes: Vec<Change>,
}

/// Compares system A with system B by paired bootstrap: each drawn set holds the same utterances for both (Bisani and
/// Ney 2004).
///
/// The order of the utterances does not matter: they are paired by name. Speakers are those of the first list.
///
/// # Errors
/// When the two lists do not have the same utterances with the same references.
pub fn compare(
    a: &[ScoredUtterance],
    b: &[ScoredUtterance],
    options: ReportOptions,
) -> Result<Comparison, CompareError> {
    let pairs = pairs(a, b)?;
    let units = Units::new(a.iter().map(|utterance| utterance.speaker.as_deref()));
    let count = |count: fn(&str, &str) -> ErrorCounts| {
        let counts = |utterance: &ScoredUtterance| count(&utterance.reference, &utterance.hypothesis);
        let (a, b): (Vec<_>, Vec<_>) = pairs.iter().map(|(a, b)| (counts(a), counts(b))).unzip();
        (a, b)
    };
    let (a_words, b_words) = count(ErrorCounts::words);
    let (a_characters, b_characters) = count(ErrorCounts::characters);
    let changed = |place: &usize| a_words[*place].errors().abs_diff(b_words[*place].errors());
    let mut places: Vec<usize> = (0..pairs.len()).filter(|place| changed(place) > 0).collect();
    places.sort_by_key(|place| std::cmp::Reverse(changed(place)));
    let change = |place: usize| Change {
        id: pairs[place].0.id.clone(),
        reference: pairs[place].0.reference.clone(),
        a: pairs[place].0.hypothesis.clone(),
        b: pairs[place].1.hypothesis.clone(),
        a_errors: a_words[place].errors(),
        b_errors: b_words[place].errors(),
    };
    Ok(Comparison {
        words: difference(&units.sums(&a_words), &units.sums(&b_words), options),
        characters: difference(&units.sums(&a_characters), &units.sums(&b_characters), options),
        resampled: units.unit,
        drawn: units.len(),
        changes: places.into_iter().take(options.most).map(change).collect(),
    })
}

type Paired<'a> = (&'a ScoredUtterance, &'a ScoredUtterance);

fn pairs<'a>(a: &'a [ScoredUtterance], b: &'a [ScoredUtterance]) -> Result<Vec<Paired<'a>>, CompareError> {
    let not_paired = |utterance: &ScoredUtterance| CompareError::NotPaired { id: utterance.id.clone() };
    let mut of_b: HashMap<&str, &ScoredUtterance> = HashMap::new();
    for utterance in b {
        if of_b.insert(&utterance.id, utterance).is_some() {
            return Err(not_paired(utterance));
        }
    }
    let mut pairs = Vec::with_capacity(a.len());
    for utterance in a {
        let other = of_b.remove(utterance.id.as_str()).ok_or_else(|| not_paired(utterance))?;
        if utterance.reference != other.reference {
            let (a, b) = (utterance.reference.clone(), other.reference.clone());
            return Err(CompareError::References { id: utterance.id.clone(), a, b });
        }
        pairs.push((utterance, other));
    }
    match b.iter().find(|utterance| of_b.contains_key(utterance.id.as_str())) {
        Some(left) => Err(not_paired(left)),
        None => Ok(pairs),
    }
}

fn difference(a: &[ErrorCounts], b: &[ErrorCounts], options: ReportOptions) -> Difference {
    let ReportOptions { resamples, seed, level, .. } = options;
    let rate = |counts: &[ErrorCounts], places: &[usize]| {
        places.iter().map(|&place| counts[place]).sum::<ErrorCounts>().rate()
    };
    let values = resample(a.len(), resamples, seed, |places| rate(a, places) - rate(b, places));
    let (a, b) = (interval(a, resamples, seed, level), interval(b, resamples, seed, level));
    let difference = a.rate - b.rate;
    let (low, high) = ends(&values, level, difference);
    let points = |value: &f64| {
        if *value < 0.0 {
            1.0
        } else if *value == 0.0 {
            0.5
        } else {
            0.0
        }
    };
    let a_better = if values.is_empty() { 0.5 } else { values.iter().map(points).sum::<f64>() / values.len() as f64 };
    Difference { a, b, difference, low, high, a_better }
}
