//! Errors of recognized texts: counts, reports, confidence intervals, and comparisons of two systems.
//!
//! Rates follow jiwer's definitions. They are pooled over a corpus and never averaged over sentences.
//!
//! ```
//! use plimsoll_text::score::{Alignment, ErrorCounts};
//!
//! let texts = [("one two", "one too"), ("three", "three")];
//! let words: ErrorCounts = texts.iter().map(|(truth, found)| ErrorCounts::words(truth, found)).sum();
//! assert_eq!(words.rate(), 1.0 / 3.0);
//!
//! let alignment = Alignment::words("the quick brown fox", "the quack brown red fox");
//! assert_eq!(alignment.to_string(), "\
//! REF: the quick brown *** fox
//! HYP: the quack brown red fox
//!          S           I
//! ");
//! ```

mod alignment;
mod bootstrap;
mod compare;
mod counts;
mod edits;
mod groups;
mod random;
mod report;
#[cfg(test)]
mod tests;

pub use alignment::{Alignment, Operation, Pair};
pub use bootstrap::{Interval, ResampleUnit};
pub use compare::{Change, CompareError, Comparison, Difference, compare};
pub use counts::ErrorCounts;
pub use groups::{Confusion, Group, Ranked};
pub use report::{ErrorReport, ReportOptions, ScoredUtterance};
