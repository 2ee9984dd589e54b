//! Detection of numbers in a text, with the marks of a language.

use super::cardinal::{counted, minus};
use super::grammar::Gender;
use super::language::Language;
use crate::numbers::{digit, english_ending, english_ordinal};

/// A number in a text, and the text around it.
pub(crate) struct Found<'a> {
    /// Whether a minus stands before the number, at the start of a word. The minus is not in `before`.
    pub(crate) negative: bool,
    /// Digits before the fraction, in ASCII.
    pub(crate) whole: String,
    /// Digits of the fraction, in ASCII; empty without a fraction.
    pub(crate) fraction: String,
    /// Number of characters of the number in the text.
    pub(crate) length: usize,
    /// Text before the number that no other replacement has used.
    pub(crate) before: &'a str,
    /// Text after the number.
    pub(crate) after: &'a str,
}

impl Found<'_> {
    /// Converts the number to words, with its minus.
    pub(crate) fn words(&self, language: Language, gender: Gender) -> String {
        let words = counted(language, &self.whole, &self.fraction, gender);
        if self.negative { format!("{} {words}", minus(language)) } else { words }
    }
}

/// Text that replaces a number, with parts of the text around it.
pub(crate) struct Replacement {
    /// The new text.
    pub(crate) text: String,
    /// Number of bytes before the number that it replaces as well.
    pub(crate) before: usize,
    /// Number of bytes after the number that it replaces as well.
    pub(crate) after: usize,
}

/// Returns whether a word ends between `before` and `after`: one of them is missing or is no letter and no digit.
pub(crate) fn is_boundary(neighbor: Option<char>) -> bool {
    neighbor.is_none_or(|character| !character.is_alphanumeric())
}

/// Replaces the numbers in `text` for which `replace` returns a replacement, separated by a space from letters.
pub(crate) fn replace_numbers(
    language: Language,
    text: &str,
    replace: impl Fn(&Found<'_>) -> Option<Replacement>,
) -> String {
    let mut output = String::with_capacity(text.len());
    let (mut done, mut place) = (0, 0);
    while let Some(start) = text[place..].find(|c| digit(c).is_some()).map(|offset| place + offset) {
        let (whole, fraction, end) = number_at(language, text, start);
        let signed = text[done..start].strip_suffix(['-', '−']);
        let before = signed.filter(|before| before.is_empty() && done == 0 || before.ends_with([' ', '(', '\n', '\t']));
        let negative = before.is_some();
        let before = before.unwrap_or(&text[done..start]);
        let length = text[start..end].chars().count();
        let found = Found { negative, whole, fraction, length, before, after: &text[end..] };
        place = end;
        let Some(new) = replace(&found) else { continue };
        output.push_str(&before[..before.len() - new.before]);
        place = end + new.after;
        let apart = |neighbor: Option<char>| neighbor.is_some_and(char::is_alphanumeric);
        if apart(output.chars().next_back()) {
            output.push(' ');
        }
        output.push_str(&new.text);
        if apart(text[place..].chars().next()) {
            output.push(' ');
        }
        done = place;
    }
    output.push_str(&text[done..]);
    output
}

/// Converts the numbers in a text to words of a language, with its own marks for groups of digits and for fractions.
///
/// A minus belongs to a number if it stands at the start of a word. English ordinals such as `21st` are read as
/// ordinals.
///
/// ```
/// use plimsoll_text::{Language, number_words};
/// assert_eq!(number_words(Language::German, "1.250 Jahre, 3,5 davon"), "eintausendzweihundertfünfzig Jahre, drei Komma fünf davon");
/// assert_eq!(number_words(Language::English, "the 21st, at -5"), "the twenty first, at minus five");
/// ```
pub fn number_words(language: Language, text: &str) -> String {
    replace_numbers(language, text, |found| {
        if language == Language::English && found.fraction.is_empty() && !found.negative {
            let after: Vec<char> = found.after.chars().take(4).collect();
            let ending = english_ending(&after);
            // No space after an ordinal, so that `3rds` becomes `thirds`.
            let plural = usize::from(ending > 0 && after.get(ending) == Some(&'s'));
            if let Some(mut text) = (ending > 0).then(|| english_ordinal(&found.whole)).flatten() {
                text.push_str(&"s"[..plural]);
                return Some(Replacement { text, before: 0, after: ending + plural });
            }
        }
        Some(Replacement { text: found.words(language, Gender::None), before: 0, after: 0 })
    })
}

/// Reads the number that begins at byte `start`. Returns its digits, those of its fraction, and the byte after it.
fn number_at(language: Language, text: &str, start: usize) -> (String, String, usize) {
    let (mut whole, mut end) = (String::new(), take_digits(text, start).1);
    whole.push_str(&take_digits(text, start).0);
    let mut mark = None;
    if whole.len() <= 3 && !whole.starts_with('0') {
        while let Some((digits, next, found)) = group(language, text, end, mark) {
            whole.push_str(&digits);
            end = next;
            mark = Some(found);
        }
    }
    match fraction(language, text, start, end) {
        Some((fraction, end)) => (whole, fraction, end),
        None => (whole, String::new(), end),
    }
}

/// Reads a group mark and its digits at byte `place`: three digits, or two in Hindi before another group.
fn group(language: Language, text: &str, place: usize, mark: Option<char>) -> Option<(String, usize, char)> {
    let found = text[place..].chars().next().filter(|&character| language.is_group_mark(character))?;
    if mark.is_some_and(|mark| mark != found) {
        return None;
    }
    let (digits, end) = take_digits(text, place + found.len_utf8());
    let is_pair = |digits: &str| digits.len() == 2 && group(language, text, end, Some(found)).is_some();
    let fits = digits.len() == 3 || language == Language::Hindi && is_pair(&digits);
    fits.then_some((digits, end, found))
}

/// Reads the fraction that begins with its mark at byte `end` of a number that begins at `start`.
///
/// A point also begins a fraction in languages that write a comma. A comma does not if more commas follow or precede:
/// that is a list, such as `1,2,3`.
fn fraction(language: Language, text: &str, start: usize, end: usize) -> Option<(String, usize)> {
    let mark = text[end..].chars().next().filter(|&mark| mark == '.' || mark == ',' && language.has_decimal_comma())?;
    let (digits, next) = take_digits(text, end + 1);
    let starts_with_digit = |text: &str| text.chars().next().is_some_and(|character| digit(character).is_some());
    let follows = text[next..].strip_prefix(mark).is_some_and(starts_with_digit);
    let precedes = text[..start].strip_suffix(mark).is_some_and(|before| before.ends_with(|c| digit(c).is_some()));
    let is_list = language.has_decimal_comma() && (follows || precedes);
    (!digits.is_empty() && !is_list).then_some((digits, next))
}

/// Reads digits of any script at byte `place`. Returns them in ASCII, and the byte after them.
fn take_digits(text: &str, place: usize) -> (String, usize) {
    let mut digits = String::new();
    let mut end = place;
    for character in text[place..].chars() {
        let Some(value) = digit(character) else { break };
        digits.push(value);
        end += character.len_utf8();
    }
    (digits, end)
}
