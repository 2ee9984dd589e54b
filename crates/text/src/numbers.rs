//! Numbers in texts: detection in many scripts, and replacement by words.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Setting for how a tokenizer reads numbers.
///
/// ```
/// use plimsoll_text::Numbers;
/// assert_eq!(Numbers::English.apply("21 years"), "twenty one years");
/// assert_eq!(Numbers::English.apply("the 21st"), "the twenty first");
/// assert_eq!(Numbers::AsWritten.apply("21 years"), "21 years");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Numbers {
    /// Numbers are read digit by digit; each digit is a character like other characters.
    #[default]
    AsWritten,
    /// Numbers are read as English words, including ordinals such as `1st`. Years are read like other numbers.
    English,
}

impl Numbers {
    /// Replaces the numbers in `text` according to this setting.
    pub fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::AsWritten => Cow::Borrowed(text),
            Self::English => Cow::Owned(numbers_to_english(text)),
        }
    }
}

/// Zeros of the scripts whose ten digits have consecutive code points and are written from the left.
const ZEROS: [char; 17] = ['0', '٠', '۰', '०', '০', '੦', '૦', '୦', '௦', '౦', '೦', '൦', '๐', '໐', '༠', '၀', '０'];

/// Replaces each number in `text` by `to_words` of its plain digits, such as `1250` or `3.5`; `None` keeps the number.
///
/// Digits may be of any script in a fixed list, such as Latin, Arabic or Devanagari. A comma or an apostrophe between
/// groups of three digits is dropped; a point before more digits belongs to the number. Models learn words better than
/// digits, and a synthesizer cannot pronounce a digit that is missing in its training data, so apply this function
/// before a tokenizer, both in training and in use.
///
/// ```
/// use plimsoll_text::{english_number, numbers_to_words};
/// assert_eq!(numbers_to_words("1,250 years, 3.5 of them", english_number), "one thousand two hundred fifty years, three point five of them");
/// assert_eq!(numbers_to_words("२४ घंटे", |digits| (digits == "24").then(|| "चौबीस".into())), "चौबीस घंटे");
/// ```
pub fn numbers_to_words(text: &str, to_words: impl Fn(&str) -> Option<String>) -> String {
    replace_numbers(text, |digits, _, _| Some((to_words(digits)?, 0)))
}

/// Replaces each number in `text`. `to_words` gets the digits of the number and the characters before and after the
/// number; it returns the words, and how many of the characters after the number the words replace too.
fn replace_numbers(text: &str, to_words: impl Fn(&str, &[char], &[char]) -> Option<(String, usize)>) -> String {
    let characters: Vec<char> = text.chars().collect();
    let (mut output, mut place) = (String::with_capacity(text.len()), 0);
    while place < characters.len() {
        let (digits, end) = number_at(&characters, place);
        if end == place {
            output.push(characters[place]);
            place += 1;
            continue;
        }
        place = match to_words(&digits, &characters[..place], &characters[end..]) {
            Some((words, more)) => {
                output.push_str(&words);
                end + more
            }
            None => {
                output.extend(&characters[place..end]);
                end
            }
        };
    }
    output
}

/// Parses the number in `characters` that begins at index `place`. Returns its plain digits and the index just after
/// the number, which is `place` when there is no number.
fn number_at(characters: &[char], place: usize) -> (String, usize) {
    let digit = |at: usize| characters.get(at).copied().and_then(digit);
    let run = |from: usize| (from..).take_while(|&at| digit(at).is_some()).count();
    let (mut digits, mut end) = (String::new(), place);
    let mut take = |digits: &mut String, from: usize, count: usize| {
        digits.extend((from..from + count).filter_map(digit));
        end = from + count;
        end
    };
    let mut at = take(&mut digits, place, run(place));
    // Groups: `1,250,000`, but not `1,25` or `1234,567`.
    while digits.len() % 3 != 0 || at - place > 0 {
        let is_group = (1..=3).contains(&run(place)) && matches!(characters.get(at), Some(',' | '\'' | '’'));
        if !(is_group && run(at + 1) == 3) {
            break;
        }
        at = take(&mut digits, at + 1, 3);
    }
    if !digits.is_empty() && characters.get(at) == Some(&'.') && run(at + 1) > 0 {
        digits.push('.');
        take(&mut digits, at + 1, run(at + 1));
    }
    (digits, end)
}

pub(crate) fn digit(character: char) -> Option<char> {
    let value = |zero: &char| (character as u32).checked_sub(*zero as u32).filter(|value| *value < 10);
    ZEROS.iter().find_map(value).and_then(|value| char::from_digit(value, 10))
}

const ONES: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const GROUPS: [&str; 7] = ["", " thousand", " million", " billion", " trillion", " quadrillion", " quintillion"];

/// Converts `digits` to English words, for [`numbers_to_words`].
///
/// Whole numbers below 2⁶⁴ are read as numbers, and larger whole numbers give `None`; fractions and numbers with
/// leading zeros are read digit by digit.
pub fn english_number(digits: &str) -> Option<String> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number: u64 = whole.parse().ok()?;
    let one_by_one = |digits: &str| -> Vec<String> {
        digits.chars().filter_map(|digit| digit.to_digit(10)).map(|digit| ONES[digit as usize].into()).collect()
    };
    let groups: Vec<usize> = (0..GROUPS.len() as u32).map(|n| (number / 1000u64.pow(n) % 1000) as usize).collect();
    let named = groups.iter().zip(GROUPS).rev().filter(|(group, _)| **group > 0);
    let mut words: Vec<String> = named.map(|(group, name)| format!("{}{name}", below_a_thousand(*group))).collect();
    if words.is_empty() || whole.starts_with('0') {
        // `007` is read digit by digit.
        words = one_by_one(whole);
    }
    if !fraction.is_empty() {
        words.push("point".into());
        words.extend(one_by_one(fraction));
    }
    Some(words.join(" "))
}

/// Replaces the numbers in `text` by English words, separated by spaces from letters next to them.
fn numbers_to_english(text: &str) -> String {
    let apart =
        |character: Option<&char>| if character.is_some_and(|character| character.is_alphabetic()) { " " } else { "" };
    replace_numbers(text, |digits, before, after| {
        let ending = if digits.contains('.') { 0 } else { english_ending(after) };
        let words = if ending == 0 { english_number(digits)? } else { english_ordinal(digits)? };
        // No space after an ordinal, so that `3rds` becomes `thirds`.
        let next = if ending == 0 { after.first() } else { None };
        Some((format!("{}{words}{}", apart(before.last()), apart(next)), ending))
    })
}

/// Returns the length of the ordinal ending (`st`, `nd`, `rd`, `th`) at the start of `after`; 0 when there is none.
pub(crate) fn english_ending(after: &[char]) -> usize {
    let ending: String = after.iter().take(2).flat_map(|character| character.to_lowercase()).collect();
    let rest = after.get(2..).unwrap_or_default();
    let rest = rest.strip_prefix(&['s']).unwrap_or(rest);
    let ends = rest.first().is_none_or(|character| !character.is_alphanumeric());
    if ends && ["st", "nd", "rd", "th"].contains(&ending.as_str()) { 2 } else { 0 }
}

/// Converts `digits` to an English ordinal, such as `first`; `None` for a number of 2⁶⁴ or more.
pub(crate) fn english_ordinal(digits: &str) -> Option<String> {
    const ODD: [(&str, &str); 7] = [
        ("one", "first"),
        ("two", "second"),
        ("three", "third"),
        ("five", "fifth"),
        ("eight", "eighth"),
        ("nine", "ninth"),
        ("twelve", "twelfth"),
    ];
    let cardinal = english_number(digits)?;
    let (before, last) = cardinal.rsplit_once(' ').map_or(("", cardinal.as_str()), |(before, last)| (before, last));
    let last = match (ODD.iter().find(|(number, _)| *number == last), last.strip_suffix('y')) {
        (Some((_, ordinal)), _) => (*ordinal).to_owned(),
        (None, Some(ten)) => format!("{ten}ieth"),
        (None, None) => format!("{last}th"),
    };
    Some(if before.is_empty() { last } else { format!("{before} {last}") })
}

fn below_a_thousand(number: usize) -> String {
    let below_a_hundred = |number: usize| match (number / 10, number % 10) {
        (0 | 1, _) => ONES[number].to_owned(),
        (tens, 0) => TENS[tens].to_owned(),
        (tens, ones) => format!("{} {}", TENS[tens], ONES[ones]),
    };
    match (number / 100, number % 100) {
        (0, rest) => below_a_hundred(rest),
        (hundreds, 0) => format!("{} hundred", ONES[hundreds]),
        (hundreds, rest) => format!("{} hundred {}", ONES[hundreds], below_a_hundred(rest)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_found_and_replaced() {
        for (text, expected) in [
            ("", ""),
            ("no number", "no number"),
            ("0", "zero"),
            ("in 1066.", "in one thousand sixty six."),
            ("21,000 and 1,25", "twenty one thousand and one,twenty five"),
            ("1,000,000 or 2'345", "one million or two thousand three hundred forty five"),
            ("3.14", "three point one four"),
            ("9.", "nine."),
            ("۱۲ ساعت", "twelve ساعت"),
            ("room 101b", "room one hundred oneb"),
            (
                "18446744073709551615",
                "eighteen quintillion four hundred forty six quadrillion seven hundred forty four trillion seventy three billion seven hundred nine million five hundred fifty one thousand six hundred fifteen",
            ),
            ("18446744073709551616", "18446744073709551616"),
            ("1234,567", "one thousand two hundred thirty four,five hundred sixty seven"),
        ] {
            assert_eq!(numbers_to_words(text, english_number), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn numbers_without_words_are_kept(text in "\\PC{0,40}") {
            prop_assert_eq!(numbers_to_words(&text, |_| None), text);
        }

        #[test]
        fn no_digit_is_left(number in any::<u64>()) {
            let words = numbers_to_words(&number.to_string(), english_number);
            prop_assert!(!words.contains(|character: char| character.is_numeric()), "{words}");
        }
    }

    #[test]
    fn ordinals_are_read_as_ordinals() {
        for (text, expected) in [
            ("the 1st, 2nd and 3rd", "the first, second and third"),
            ("12th 20th 21ST", "twelfth twentieth twenty first"),
            ("100th 1,000th", "one hundredth one thousandth"),
            ("5this 4 th 8s", "five this four th eight s"),
            ("2/3rds, 12.5th", "two/thirds, twelve point five th"),
            ("5km of B2B at 9:05 by 007", "five km of B two B at nine:zero five by zero zero seven"),
        ] {
            assert_eq!(Numbers::English.apply(text), expected, "{text}");
        }
    }
}
