//! White space, composed letters and case: how a text is brought to one form.

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// Whether letters keep their case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// As written.
    #[default]
    Keep,
    /// All in lower case, where the script has one.
    Lower,
}

/// `text` with every run of white space as one space, none at the ends, and letters composed (Unicode's NFC).
///
/// The same letter with its accent can be written as one character or as two, which look alike and would be two tokens.
///
/// ```
/// use plimsoll_text::{Case, normalise};
/// assert_eq!(normalise("  देव \t बरें\n", Case::Keep), "देव बरें");
/// assert_eq!(normalise("Good  Morning", Case::Lower), "good morning");
/// assert_eq!(normalise("cafe\u{301}", Case::Keep), "café");
/// ```
pub fn normalise(text: &str, case: Case) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text: String = words.join(" ").nfc().collect();
    if case == Case::Lower { text.to_lowercase() } else { text }
}
