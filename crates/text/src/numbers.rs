//! Numbers in texts: found in any script, and said as whoever knows the language says them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// How a tokenizer reads numbers.
///
/// ```
/// use plimsoll_text::Numbers;
/// assert_eq!(Numbers::English.said("21 years"), "twenty one years");
/// assert_eq!(Numbers::English.said("the 21st"), "the twenty first");
/// assert_eq!(Numbers::AsWritten.said("21 years"), "21 years");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Numbers {
    /// Digit by digit, each a letter like others.
    #[default]
    AsWritten,
    /// As the words that say them in English, `1st` and its like among them. A year is a number like others.
    English,
}

impl Numbers {
    /// `text` with its numbers as they are read.
    pub fn said(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::AsWritten => Cow::Borrowed(text),
            Self::English => Cow::Owned(said_in_english(text)),
        }
    }
}

/// Zeros of scripts whose ten digits stand one after the other, and are written from the left as everywhere.
const ZEROS: [char; 17] = ['0', '٠', '۰', '०', '০', '੦', '૦', '୦', '௦', '౦', '೦', '൦', '๐', '໐', '༠', '၀', '０'];

/// `text` with its numbers said: each is given to `say` in plain digits, such as `1250` or `3.5`, and stays as it is where
/// that says nothing.
///
/// Digits may be of any script. A comma or an apostrophe between groups of three is left out; a point before more digits
/// belongs to the number. A recogniser learns words better than digits, and a synthesiser cannot say what it never heard, so
/// texts should go through this before a tokenizer sees them, in training as in use.
///
/// ```
/// use plimsoll_text::{english_number, say_numbers};
/// assert_eq!(say_numbers("1,250 years, 3.5 of them", english_number), "one thousand two hundred fifty years, three point five of them");
/// assert_eq!(say_numbers("२४ घंटे", |digits| (digits == "24").then(|| "चौबीस".into())), "चौबीस घंटे");
/// ```
pub fn say_numbers(text: &str, say: impl Fn(&str) -> Option<String>) -> String {
    said_by(text, |digits, _, _| Some((say(digits)?, 0)))
}

/// `text` with its numbers said by somebody who sees what stands before and after each, and says how many letters of what
/// stands after it are said as well.
fn said_by(text: &str, say: impl Fn(&str, &[char], &[char]) -> Option<(String, usize)>) -> String {
    let letters: Vec<char> = text.chars().collect();
    let (mut said, mut place) = (String::with_capacity(text.len()), 0);
    while place < letters.len() {
        let (digits, end) = number_at(&letters, place);
        if end == place {
            said.push(letters[place]);
            place += 1;
            continue;
        }
        place = match say(&digits, &letters[..place], &letters[end..]) {
            Some((words, more)) => {
                said.push_str(&words);
                end + more
            }
            None => {
                said.extend(&letters[place..end]);
                end
            }
        };
    }
    said
}

/// The number that begins at `place`, in plain digits, and where it ends; the same place where there is none.
fn number_at(letters: &[char], place: usize) -> (String, usize) {
    let digit = |at: usize| letters.get(at).copied().and_then(digit);
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
        let is_group = (1..=3).contains(&run(place)) && matches!(letters.get(at), Some(',' | '\'' | '’'));
        if !(is_group && run(at + 1) == 3) {
            break;
        }
        at = take(&mut digits, at + 1, 3);
    }
    if !digits.is_empty() && letters.get(at) == Some(&'.') && run(at + 1) > 0 {
        digits.push('.');
        take(&mut digits, at + 1, run(at + 1));
    }
    (digits, end)
}

fn digit(letter: char) -> Option<char> {
    let value = |zero: &char| (letter as u32).checked_sub(*zero as u32).filter(|value| *value < 10);
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

/// How `digits` are said in English, for [`say_numbers`]: whole numbers below 2⁶⁴, and fractions digit by digit.
pub fn english_number(digits: &str) -> Option<String> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number: u64 = whole.parse().ok()?;
    let one_by_one = |digits: &str| -> Vec<String> {
        digits.chars().filter_map(|digit| digit.to_digit(10)).map(|digit| ONES[digit as usize].into()).collect()
    };
    let groups: Vec<usize> = (0..GROUPS.len() as u32).map(|n| (number / 1000u64.pow(n) % 1000) as usize).collect();
    let said = groups.iter().zip(GROUPS).rev().filter(|(group, _)| **group > 0);
    let mut words: Vec<String> = said.map(|(group, name)| format!("{}{name}", below_a_thousand(*group))).collect();
    if words.is_empty() || whole.starts_with('0') {
        // `007` is a name, and not seven.
        words = one_by_one(whole);
    }
    if !fraction.is_empty() {
        words.push("point".into());
        words.extend(one_by_one(fraction));
    }
    Some(words.join(" "))
}

/// `text` with its numbers as words of English, which stand apart from the letters around them.
fn said_in_english(text: &str) -> String {
    let apart = |letter: Option<&char>| if letter.is_some_and(|letter| letter.is_alphabetic()) { " " } else { "" };
    said_by(text, |digits, before, after| {
        let ending = if digits.contains('.') { 0 } else { english_ending(after) };
        let words = if ending == 0 { english_number(digits)? } else { english_ordinal(digits)? };
        // Two thirds are more than one.
        let next = if ending == 0 { after.first() } else { None };
        Some((format!("{}{words}{}", apart(before.last()), apart(next)), ending))
    })
}

/// The letters at the start of `after` that make the number before them an ordinal.
fn english_ending(after: &[char]) -> usize {
    let ending: String = after.iter().take(2).flat_map(|letter| letter.to_lowercase()).collect();
    let rest = after.get(2..).unwrap_or_default();
    let rest = rest.strip_prefix(&['s']).unwrap_or(rest);
    let ends = rest.first().is_none_or(|letter| !letter.is_alphanumeric());
    if ends && ["st", "nd", "rd", "th"].contains(&ending.as_str()) { 2 } else { 0 }
}

/// How `digits` are said where they give a place in a row.
fn english_ordinal(digits: &str) -> Option<String> {
    const ODD: [(&str, &str); 7] = [
        ("one", "first"),
        ("two", "second"),
        ("three", "third"),
        ("five", "fifth"),
        ("eight", "eighth"),
        ("nine", "ninth"),
        ("twelve", "twelfth"),
    ];
    let said = english_number(digits)?;
    let (before, last) = said.rsplit_once(' ').map_or(("", said.as_str()), |(before, last)| (before, last));
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
    fn numbers_are_found_and_said() {
        for (text, said) in [
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
            assert_eq!(say_numbers(text, english_number), said, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_not_said_stays(text in "\\PC{0,40}") {
            prop_assert_eq!(say_numbers(&text, |_| None), text);
        }

        #[test]
        fn no_digit_is_left(number in any::<u64>()) {
            let said = say_numbers(&number.to_string(), english_number);
            prop_assert!(!said.contains(|letter: char| letter.is_numeric()), "{said}");
        }
    }

    #[test]
    fn places_in_a_row_are_said_as_such() {
        for (text, said) in [
            ("the 1st, 2nd and 3rd", "the first, second and third"),
            ("12th 20th 21ST", "twelfth twentieth twenty first"),
            ("100th 1,000th", "one hundredth one thousandth"),
            ("5this 4 th 8s", "five this four th eight s"),
            ("2/3rds, 12.5th", "two/thirds, twelve point five th"),
            ("5km of B2B at 9:05 by 007", "five km of B two B at nine:zero five by zero zero seven"),
        ] {
            assert_eq!(Numbers::English.said(text), said, "{text}");
        }
    }
}
