//! Years as words.

use super::cardinal::whole_number;
use super::grammar::Gender;
use super::language::Language;

/// Converts a year to words: in English and German in hundreds where that is usual, else as a cardinal number.
pub(crate) fn year(language: Language, year: u64) -> String {
    let words = |number| whole_number(language, number, Gender::None);
    let (hundreds, rest) = (year / 100, year % 100);
    match language {
        Language::English if !(1000..10_000).contains(&year) || hundreds.is_multiple_of(10) && rest < 10 => words(year),
        Language::English if rest == 0 => format!("{} hundred", words(hundreds)),
        Language::English if rest < 10 => format!("{} oh {}", words(hundreds), words(rest)),
        Language::English => format!("{} {}", words(hundreds), words(rest)),
        Language::German if (1100..2000).contains(&year) => {
            let rest = if rest == 0 { String::new() } else { words(rest) };
            format!("{}hundert{rest}", words(hundreds))
        }
        _ => words(year),
    }
}
