//! Comparison of two recognizers on the same utterances.

use std::fmt::Write;
use std::path::Path;

use plimsoll_recipes::{Failure, FailureExt};
use plimsoll_text::score::{self, Change, Comparison, Difference, ReportOptions};

use super::details::{DRAWN_MIN, drawn};
use super::report::Report;

/// Compares two reports on the same utterances.
///
/// # Errors
/// If one recognizer could read an utterance that the other could not.
pub(super) fn compare(first: &Report, second: &Report) -> Result<Comparison, Failure> {
    score::compare(&first.texts(), &second.texts(), ReportOptions::default()).invalid()
}

/// Formats a comparison as text, with the `count` utterances that changed most.
pub(super) fn summary(comparison: &Comparison, first: &Path, second: &Path, count: usize) -> String {
    let is_certain = comparison.drawn >= DRAWN_MIN;
    let drawn = drawn(comparison.drawn, comparison.resampled);
    let (a, b) = (first.display(), second.display());
    let mut text = match is_certain {
        true => format!("{a} (A) beside {b} (B), 95 % intervals drawn over {drawn}\n"),
        false => format!("{a} (A) beside {b} (B), no interval over so few: {drawn}\n"),
    };
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
