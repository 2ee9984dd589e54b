//! Cardinal numbers in any of the languages.

use super::grammar::Gender;
use super::language::Language;
use super::{german, hindi, polish, romance, russian};
use crate::numbers::english_number;

/// Converts a plain number such as `-1250.5` to words.
///
/// The text has an optional minus, digits, and an optional fraction after a point, whatever the language writes.
/// Numbers with leading zeros, and numbers of 2⁶⁴ or more, are read digit by digit. `None` for any other text.
///
/// ```
/// use plimsoll_text::{Language, cardinal};
/// assert_eq!(cardinal(Language::German, "21").as_deref(), Some("einundzwanzig"));
/// assert_eq!(cardinal(Language::French, "-80.5").as_deref(), Some("moins quatre-vingts virgule cinq"));
/// assert_eq!(cardinal(Language::English, "007").as_deref(), Some("zero zero seven"));
/// assert_eq!(cardinal(Language::English, "x"), None);
/// ```
pub fn cardinal(language: Language, number: &str) -> Option<String> {
    let (negative, number) = number.strip_prefix('-').map_or((false, number), |number| (true, number));
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(whole, part)| (whole, Some(part)));
    let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !fraction.is_none_or(is_digits) {
        return None;
    }
    let words = counted(language, whole, fraction.unwrap_or_default(), Gender::None);
    Some(if negative { format!("{} {words}", minus(language)) } else { words })
}

/// Returns the word for a minus.
pub(crate) fn minus(language: Language) -> &'static str {
    match language {
        Language::English | Language::German | Language::Polish => "minus",
        Language::French => "moins",
        Language::Spanish => "menos",
        Language::Russian => "минус",
        Language::Hindi => "ऋण",
    }
}

/// Converts a number without a sign to words. `whole` and `fraction` are digits; `fraction` may be empty.
pub(crate) fn counted(language: Language, whole: &str, fraction: &str, gender: Gender) -> String {
    let is_plain = whole == "0" || !whole.starts_with('0');
    let number = whole.parse().ok().filter(|_| is_plain);
    match (number, language) {
        (Some(number), Language::Russian) if !fraction.is_empty() => {
            if let Some(words) = russian::decimal(number, fraction) {
                return words;
            }
        }
        _ => {}
    }
    let gender = if fraction.is_empty() { gender } else { Gender::None };
    let words = number.map(|number| whole_number(language, number, gender));
    let words = words.unwrap_or_else(|| digits_one_by_one(language, whole));
    if fraction.is_empty() {
        return words;
    }
    let (point, part) = match language {
        Language::English => ("point", digits_one_by_one(language, fraction)),
        Language::German => ("Komma", digits_one_by_one(language, fraction)),
        Language::French => ("virgule", digits_one_by_one(language, fraction)),
        Language::Spanish => ("coma", digits_one_by_one(language, fraction)),
        Language::Russian => ("запятая", digits_one_by_one(language, fraction)),
        Language::Polish => ("przecinek", polish::fraction(fraction)),
        Language::Hindi => ("दशमलव", digits_one_by_one(language, fraction)),
    };
    format!("{words} {point} {part}")
}

/// Reads digits one by one.
pub(crate) fn digits_one_by_one(language: Language, digits: &str) -> String {
    let word = |digit: char| whole_number(language, u64::from(digit.to_digit(10).unwrap_or_default()), Gender::None);
    digits.chars().map(word).collect::<Vec<_>>().join(" ")
}

/// Converts a whole number to words.
pub(crate) fn whole_number(language: Language, number: u64, gender: Gender) -> String {
    match language {
        Language::English => english_number(&number.to_string()).unwrap_or_default(),
        Language::German => german::whole(number, gender),
        Language::French => romance::french(number, gender),
        Language::Spanish => romance::spanish(number, gender),
        Language::Russian => russian::whole(number, gender),
        Language::Polish => polish::whole(number, gender),
        Language::Hindi => hindi::whole(number),
    }
}
