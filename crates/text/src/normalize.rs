//! Normalization of texts: white space, composed characters and case.

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

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
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").nfc().collect();
    if case == Case::Lower { text.to_lowercase() } else { text }
}
