//! Numbers as words, in several languages.

mod cardinal;
mod german;
mod grammar;
mod hindi;
mod language;
mod polish;
mod romance;
mod russian;
mod scan;
#[cfg(test)]
mod tests;
mod year;

pub use cardinal::cardinal;
pub(crate) use cardinal::{counted, minus, whole_number};
pub(crate) use grammar::{Gender, by_count};
pub use language::Language;
pub use scan::number_words;
pub(crate) use scan::{Found, Replacement, is_boundary, replace_numbers};
pub(crate) use year::year;
