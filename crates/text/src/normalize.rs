//! Normalization of texts: white space, composed characters, case and punctuation.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Setting for the case of normalized text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// Keeps the case of the text.
    #[default]
    Keep,
    /// Converts text to lower case, in scripts that have lower case.
    Lower,
}

/// Normalizes a text: collapses white space, trims both ends and composes characters (Unicode's NFC).
///
/// A letter with an accent can be written as one character or as two, which look alike but would be two tokens.
///
/// ```
/// use plimsoll_text::{Case, normalize};
/// assert_eq!(normalize("  देव \t बरें\n", Case::Keep), "देव बरें");
/// assert_eq!(normalize("Good  Morning", Case::Lower), "good morning");
/// assert_eq!(normalize("cafe\u{301}", Case::Keep), "café");
/// ```
pub fn normalize(text: &str, case: Case) -> String {
    normalized(text, case).into_owned()
}

/// Normalizes a text as [`normalize`] does. A text that is normal is not copied.
///
/// ```
/// use std::borrow::Cow;
/// use plimsoll_text::{Case, normalized};
/// assert!(matches!(normalized("good morning", Case::Keep), Cow::Borrowed("good morning")));
/// assert_eq!(normalized("Good  Morning", Case::Lower), "good morning");
/// ```
pub fn normalized(text: &str, case: Case) -> Cow<'_, str> {
    if is_normal_ascii(text) {
        return if case == Case::Lower { text.to_ascii_lowercase().into() } else { text.into() };
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").nfc().collect();
    if case == Case::Lower { text.to_lowercase().into() } else { text.into() }
}

/// Returns whether a text is ASCII without white space other than single spaces between words: normal as it is.
fn is_normal_ascii(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_plain = bytes.iter().fold(true, |plain, &byte| plain & (b' '..0x7f).contains(&byte));
    is_plain
        && bytes.first() != Some(&b' ')
        && bytes.last() != Some(&b' ')
        && !bytes.windows(2).fold(false, |double, pair| double | (pair == b"  "))
}

/// Replaces punctuation by spaces, except for single marks inside a word or a number.
///
/// Most marks are not heard, but a recognizer with CTC needs a frame for each, and one more between two equal ones.
///
/// ```
/// use plimsoll_text::without_punctuation;
/// assert_eq!(without_punctuation("... dlya ..."), "    dlya    ");
/// assert_eq!(without_punctuation("don't, well-known (3.5)"), "don't  well-known  3.5 ");
/// ```
pub fn without_punctuation(text: &str) -> String {
    // Millions of texts hold nothing but words.
    if text.bytes().fold(true, |plain, byte| plain & (byte.is_ascii_alphanumeric() | (byte == b' '))) {
        return text.into();
    }
    let in_word = |character: Option<char>| character.is_some_and(|c| !c.is_whitespace() && !is_mark(c));
    let mut before = None;
    let mut characters = text.chars().peekable();
    let mut kept = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        let is_inside = in_word(before) && in_word(characters.peek().copied());
        kept.push(if is_mark(character) && !is_inside { ' ' } else { character });
        before = Some(character);
    }
    kept
}

/// Returns whether a character is punctuation.
fn is_mark(character: char) -> bool {
    match character {
        // The search in Unicode's tables takes most of the time that a text takes.
        '\0'..='\x7f' => {
            matches!(character, '!'..='#' | '%'..='*' | ','..='/' | ':' | ';' | '?' | '@' | '['..=']' | '_' | '{' | '}')
        }
        _ => character.general_category_group() == GeneralCategoryGroup::Punctuation,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_ascii_are_those_of_unicode() {
        for character in '\0'..='\x7f' {
            let is_punctuation = character.general_category_group() == GeneralCategoryGroup::Punctuation;
            assert_eq!(is_mark(character), is_punctuation, "{character:?}");
        }
    }

    #[test]
    fn marks_around_words_become_spaces_in_every_script() {
        for (text, expected) in [
            ("", ""),
            ("...", ""),
            ("a...b", "a b"),
            ("«Привет», — сказал он…", "Привет сказал он"),
            ("दिल्ली में, है।", "दिल्ली में है"),
            ("¿Qué? ¡Sí!", "Qué Sí"),
            ("rock'n'roll - 10,000.5%", "rock'n'roll 10,000.5"),
            ("5 + 3 = $8", "5 + 3 = $8"),
        ] {
            assert_eq!(normalize(&without_punctuation(text), Case::Keep), expected, "{text}");
        }
    }
}
