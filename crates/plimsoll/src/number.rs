//! Numbers of flags, with their limits, and times in JSON output.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

/// Parses the value of a flag that takes a whole number in `range`, which begins above 0.
///
/// # Errors
/// A message that names the range, if `text` is no number in it.
pub(crate) fn number_in(text: &str, range: RangeInclusive<usize>) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number| range.contains(number)).and_then(NonZeroUsize::new);
    number.ok_or_else(|| match (range.start(), range.end()) {
        (least, &usize::MAX) => format!("expected a whole number, at least {least}"),
        (least, most) => format!("expected a whole number from {least} to {most}"),
    })
}

/// Parses the value of a flag that takes any whole number above 0.
///
/// # Errors
/// A message, if `text` is no such number.
pub(crate) fn number_above_0(text: &str) -> Result<NonZeroUsize, String> {
    number_in(text, 1..=usize::MAX)
}

/// Parses the value of a flag that takes any number.
///
/// # Errors
/// A message, if `text` is no number, or an infinite one.
pub(crate) fn finite_number(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(|| "expected a finite number".into())
}

/// Rounds a time in seconds to whole milliseconds, for JSON.
pub(crate) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_in_range_are_accepted() {
        for (text, expected) in [
            ("1", Ok(1)),
            ("1000", Ok(1000)),
            ("0", Err(())),
            ("1001", Err(())),
            ("-1", Err(())),
            ("1.5", Err(())),
            ("", Err(())),
            ("99999999999999999999999", Err(())),
        ] {
            assert_eq!(number_in(text, 1..=1000).map(NonZeroUsize::get).map_err(drop), expected, "{text}");
        }
        assert_eq!(number_in("0", 1..=9).unwrap_err(), "expected a whole number from 1 to 9");
        assert_eq!(number_above_0("0").unwrap_err(), "expected a whole number, at least 1");
    }
}
