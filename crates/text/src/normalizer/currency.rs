//! Amounts of money as words.

use super::money_words::{Money, and, currencies, large_words};
use crate::spoken::{Found, Gender, Language, Replacement, by_count, counted, is_boundary, minus, replace_numbers};

/// Replaces amounts such as `$3.50`, `20 €` and `5 EUR` by words.
pub(super) fn apply(language: Language, text: &str) -> String {
    replace_numbers(language, text, |found| {
        let prefix = currencies(language).iter().find_map(|money| Some((money, sign_before(money, found.before)?)));
        let large = large_after(language, found.after);
        let rest = &found.after[large.map_or(0, |(_, length)| length)..];
        let suffix = || currencies(language).iter().find_map(|money| Some((money, sign_after(money, rest)?)));
        let (money, before, after) = match prefix {
            Some((money, length)) => (money, length, 0),
            None => suffix().map(|(money, length)| (money, 0, length))?,
        };
        let amount = match large {
            Some((word, _)) => {
                format!("{} {word} {}{}", words(language, found), link(language, 1_000_000, money), money.unit[2])
            }
            None => amount(language, found, money),
        };
        let amount =
            if found.negative || is_minus(found, before) { format!("{} {amount}", minus(language)) } else { amount };
        let before = before + usize::from(is_minus(found, before));
        Some(Replacement { text: amount, before, after: large.map_or(0, |(_, length)| length) + after })
    })
}

fn words(language: Language, found: &Found<'_>) -> String {
    counted(language, &found.whole, &found.fraction, Gender::Masculine)
}

/// Returns whether a minus stands before the sign of the currency, as in `-$5`.
fn is_minus(found: &Found<'_>, sign: usize) -> bool {
    let before = found.before[..found.before.len() - sign].strip_suffix('-');
    sign > 0 && before.is_some_and(|before| before.chars().next_back().is_none_or(char::is_whitespace))
}

/// Says an amount. Two digits after the mark are the hundredth part of the unit, and one digit is tens of it.
fn amount(language: Language, found: &Found<'_>, money: &Money) -> String {
    let part: Option<u64> = match found.fraction.len() {
        1 => found.fraction.parse().ok().map(|tens: u64| tens * 10),
        2 => found.fraction.parse().ok(),
        _ => None,
    };
    let Some(part) = part.filter(|_| !money.part[0].is_empty()) else {
        let number = counted(language, &found.whole, &found.fraction, money.gender);
        let unit = by_count(language, &found.whole, &found.fraction, money.unit);
        let link = link(language, if found.fraction.is_empty() { found.whole.parse().unwrap_or(0) } else { 0 }, money);
        return format!("{number} {link}{unit}");
    };
    let cents = part.to_string();
    let cents = || {
        format!("{} {}", counted(language, &cents, "", money.part_gender), by_count(language, &cents, "", money.part))
    };
    let number = counted(language, &found.whole, "", money.gender);
    let unit = by_count(language, &found.whole, "", money.unit);
    let link = link(language, found.whole.parse().unwrap_or(0), money);
    match (found.whole.trim_start_matches('0').is_empty(), part) {
        (true, 1..) => cents(),
        (_, 0) => format!("{number} {link}{unit}"),
        _ => format!("{number} {link}{unit}{}{}", and(language), cents()),
    }
}

/// Returns the `de` after whole millions in French and Spanish.
fn link(language: Language, number: u64, money: &Money) -> &'static str {
    let is_millions = number > 0 && number.is_multiple_of(1_000_000);
    match language {
        Language::French if is_millions && money.unit[0].starts_with('e') => "d'",
        Language::French | Language::Spanish if is_millions => "de ",
        _ => "",
    }
}

/// Returns the length of a sign of the currency at the end of `before`, with a space after it.
fn sign_before(money: &Money, before: &str) -> Option<usize> {
    let trimmed = before.strip_suffix([' ', '\u{a0}', '\u{202f}']).unwrap_or(before);
    let ends = |sign: &&&str| {
        let rest = trimmed.strip_suffix(**sign);
        rest.is_some_and(|rest| !sign.ends_with(char::is_alphabetic) || is_boundary(rest.chars().next_back()))
    };
    // The longest sign: `US$` and not `$`.
    let sign = money.signs.iter().filter(ends).max_by_key(|sign| sign.len())?;
    // A sign after another number belongs to that number.
    let rest = &trimmed[..trimmed.len() - sign.len()];
    let belongs = rest.trim_end().ends_with(char::is_numeric);
    (!belongs).then_some(before.len() - trimmed.len() + sign.len())
}

/// Returns the length of a sign of the currency at the start of `after`, with a space before it.
fn sign_after(money: &Money, after: &str) -> Option<usize> {
    let trimmed = after.strip_prefix([' ', '\u{a0}', '\u{202f}']).unwrap_or(after);
    let starts = |sign: &&&str| {
        let rest = trimmed.strip_prefix(**sign);
        rest.is_some_and(|rest| !sign.ends_with(char::is_alphabetic) || is_boundary(rest.chars().next()))
    };
    let sign = money.signs.iter().find(starts)?;
    // A sign before another number belongs to that number: `5 $3`.
    let belongs = trimmed.len() < after.len() && trimmed[sign.len()..].starts_with(char::is_numeric);
    (!belongs).then_some(after.len() - trimmed.len() + sign.len())
}

/// Returns a word for a large number at the start of `after`, and its length with the space before it.
fn large_after(language: Language, after: &str) -> Option<(&'static str, usize)> {
    let rest = after.strip_prefix([' ', '\u{a0}'])?;
    let starts = |word: &&&str| rest.strip_prefix(**word).is_some_and(|rest| is_boundary(rest.chars().next()));
    let word = large_words(language).iter().find(starts)?;
    Some((word, after.len() - rest.len() + word.len()))
}
