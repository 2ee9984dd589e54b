//! Comparison of two recognizers on the same utterances.

use std::fmt::Write;
use std::path::Path;

use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_text::Tokenizer;
use plimsoll_text::score::{self, Change, Comparison, Difference, ReportOptions, ScoredUtterance};

use super::details::{DRAWN_MIN, drawn};
use super::report::{Report, bare_text};

/// A recognizer beside another on the same utterances.
pub(super) struct Beside {
    /// What the other recognizer made of the utterances.
    pub(super) other: Report,
    pub(super) comparison: Comparison,
    /// Whether capitals and punctuation count in neither: one of the two does not write them.
    pub(super) is_bare: bool,
}

/// Compares two reports on the same utterances, of models with the tokenizers `own` and `others`.
///
/// # Errors
/// If one recognizer could read an utterance that the other could not.
pub(super) fn beside(first: &Report, second: Report, own: &Tokenizer, others: &Tokenizer) -> Result<Beside, Failure> {
    let writes =
        |tokenizer: &Tokenizer| (tokenizer.normalizer().clone(), tokenizer.numbers(), tokenizer.cased_and_punctuated());
    let is_bare = writes(own) != writes(others);
    let second = if is_bare { second.bare() } else { second };
    let texts = if is_bare { first.texts().into_iter().map(bare).collect() } else { first.texts() };
    let comparison = score::compare(&texts, &second.texts(), ReportOptions::default()).invalid()?;
    Ok(Beside { other: second, comparison, is_bare })
}

/// Returns the two texts of an utterance without capitals and punctuation.
fn bare(utterance: ScoredUtterance) -> ScoredUtterance {
    let (reference, hypothesis) = (bare_text(&utterance.reference), bare_text(&utterance.hypothesis));
    ScoredUtterance { reference, hypothesis, ..utterance }
}

/// Formats a comparison as text, with the `count` utterances that changed most.
pub(super) fn summary(beside: &Beside, first: &Path, second: &Path, count: usize) -> String {
    let Beside { comparison, is_bare, .. } = beside;
    let is_certain = comparison.drawn >= DRAWN_MIN;
    let drawn = drawn(comparison.drawn, comparison.resampled);
    let (a, b) = (first.display(), second.display());
    let mut text = match is_certain {
        true => format!("{a} (A) beside {b} (B), 95 % intervals drawn over {drawn}\n"),
        false => format!("{a} (A) beside {b} (B), no interval over so few: {drawn}\n"),
    };
    if *is_bare {
        text.push_str("  without capitals and punctuation, which only one of the two writes\n");
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
