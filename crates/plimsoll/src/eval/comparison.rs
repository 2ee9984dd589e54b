//! Comparison of two recognizers on the same utterances.

use std::fmt::Write;
use std::path::Path;

use plimsoll_recipes::{Failure, FailureExt, listener};
use plimsoll_text::score::{self, Change, Comparison, Difference, ReportOptions, ScoredUtterance};
use plimsoll_text::{Case, Normalizer, Numbers, normalize, without_punctuation};

use super::details::{DRAWN_MIN, drawn};
use super::report::Report;
use super::utterances::data_of;

/// A recognizer beside another on the same utterances.
pub(super) struct Beside {
    /// What the other recognizer made of the utterances.
    pub(super) other: Report,
    pub(super) comparison: Comparison,
    /// Whether capitals and punctuation count in neither: one of the two does not write them.
    pub(super) is_bare: bool,
    /// Whether both were trained on texts that were normalized alike.
    is_normalized_alike: bool,
}

/// What a recognizer writes.
#[derive(PartialEq, Eq)]
pub(super) struct Writes {
    capitals: bool,
    punctuation: bool,
    /// How its texts were normalized.
    normalized: (Normalizer, Numbers),
}

impl Writes {
    /// Finds what the recognizer in `run` writes, by its tokenizer and by the texts that it has learned from.
    ///
    /// # Errors
    /// If the files of the run cannot be read.
    pub(super) fn of(run: &Path) -> Result<Self, Failure> {
        let (tokenizer, data) = (listener::tokenizer(run)?, data_of(run)?);
        let (capitals, punctuation) = tokenizer.cased_and_punctuated();
        Ok(Self {
            capitals: capitals && !data.lowercase && tokenizer.normalized("A").contains('A'),
            punctuation: punctuation && data.punctuation && tokenizer.normalized("a, b").contains(','),
            normalized: (tokenizer.normalizer().clone(), tokenizer.numbers()),
        })
    }
}

/// Compares the reports `first` and `other` on the same utterances, of recognizers that write `own` and `others`.
///
/// # Errors
/// If one recognizer could read an utterance that the other could not.
pub(super) fn beside(first: &Report, other: Report, own: &Writes, others: &Writes) -> Result<Beside, Failure> {
    let is_bare = (own.capitals, own.punctuation) != (others.capitals, others.punctuation);
    let texts = |report: &Report| {
        let texts = report.texts().into_iter();
        if is_bare { texts.map(bare).collect::<Vec<_>>() } else { texts.collect() }
    };
    let comparison = score::compare(&texts(first), &texts(&other), ReportOptions::default()).invalid()?;
    Ok(Beside { other, comparison, is_bare, is_normalized_alike: own.normalized == others.normalized })
}

/// Returns the two texts of an utterance without capitals and punctuation.
fn bare(utterance: ScoredUtterance) -> ScoredUtterance {
    let bare = |text: &str| normalize(&without_punctuation(text), Case::Lower);
    let (reference, hypothesis) = (bare(&utterance.reference), bare(&utterance.hypothesis));
    ScoredUtterance { reference, hypothesis, ..utterance }
}

/// Formats a comparison as text, with the `count` utterances that changed most.
pub(super) fn summary(beside: &Beside, first: &Path, second: &Path, count: usize) -> String {
    let Beside { comparison, is_bare, is_normalized_alike, .. } = beside;
    let is_certain = comparison.drawn >= DRAWN_MIN;
    let drawn = drawn(comparison.drawn, comparison.resampled);
    let (a, b) = (first.display(), second.display());
    let mut text = match is_certain {
        true => format!("{a} (A) beside {b} (B), 95 % intervals drawn over {drawn}\n"),
        false => format!("{a} (A) beside {b} (B), no interval over so few: {drawn}\n"),
    };
    if *is_bare {
        text.push_str("  without capitals and punctuation: one of the two does not write them\n");
    }
    if !is_normalized_alike {
        text.push_str("  the true texts are normalized as those of A were: what B writes otherwise, such as numbers, counts as wrong\n");
    }
    for (name, difference) in [("CER", &comparison.characters), ("WER", &comparison.words)] {
        let Difference { a, b, difference, low, high, a_better } = difference;
        let [a, b, difference, low, high] = [a.rate, b.rate, *difference, *low, *high].map(|rate| rate * 100.0);
        let interval = match is_certain {
            true => format!(", {low:+.2} to {high:+.2}; {}", verdict(low, high, *a_better)),
            false => String::new(),
        };
        let _ = writeln!(text, "  {name}  A {a:.2} %, B {b:.2} %: {difference:+.2} points{interval}");
    }
    for Change { id, reference, a, b, a_errors, b_errors } in comparison.changes.iter().take(count) {
        let _ = writeln!(text, "  {id}: {a_errors} wrong words in A, {b_errors} in B");
        let _ = writeln!(text, "    truth  {reference}\n    A      {a}\n    B      {b}");
    }
    text
}

/// Says which system is better, if the interval of the difference is certain enough.
fn verdict(low: f64, high: f64, a_better: f64) -> String {
    match (high < 0.0, low > 0.0) {
        (true, _) => "A is better".into(),
        (_, true) => "B is better".into(),
        _ => format!("no certain difference (A is better in {:.0} % of the drawn sets)", a_better * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_if_its_interval_does_not_hold_zero() {
        assert_eq!(verdict(-2.0, -0.1, 1.0), "A is better");
        assert_eq!(verdict(0.1, 2.0, 0.0), "B is better");
        assert_eq!(verdict(-1.0, 1.0, 0.5), "no certain difference (A is better in 50 % of the drawn sets)");
    }
}
