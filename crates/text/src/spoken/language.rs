//! Languages whose numbers can be written as words.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Language whose numbers the normalizer can write as words.
///
/// ```
/// use plimsoll_text::Language;
/// assert_eq!(Language::from_code("de"), Some(Language::German));
/// assert_eq!(Language::German.to_string(), "de");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Language {
    /// English.
    #[serde(rename = "en")]
    English,
    /// German.
    #[serde(rename = "de")]
    German,
    /// French of France: `soixante-dix`, not `septante`.
    #[serde(rename = "fr")]
    French,
    /// Spanish.
    #[serde(rename = "es")]
    Spanish,
    /// Russian.
    #[serde(rename = "ru")]
    Russian,
    /// Polish.
    #[serde(rename = "pl")]
    Polish,
    /// Hindi.
    #[serde(rename = "hi")]
    Hindi,
}

impl Language {
    /// All languages.
    pub const ALL: [Self; 7] =
        [Self::English, Self::German, Self::French, Self::Spanish, Self::Russian, Self::Polish, Self::Hindi];

    /// Returns the code of ISO 639-1, such as `en`.
    pub fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::German => "de",
            Self::French => "fr",
            Self::Spanish => "es",
            Self::Russian => "ru",
            Self::Polish => "pl",
            Self::Hindi => "hi",
        }
    }

    /// Finds the language with this code; `None` for any other code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.code() == code)
    }

    /// Returns whether a comma separates the fraction of a number.
    pub(crate) fn has_decimal_comma(self) -> bool {
        !matches!(self, Self::English | Self::Hindi)
    }

    /// Returns whether `character` separates the groups of three digits in a number.
    pub(crate) fn is_group_mark(self, character: char) -> bool {
        let space = matches!(character, ' ' | '\u{a0}' | '\u{202f}');
        matches!(character, '\'' | '’')
            || match self {
                Self::English | Self::Hindi => character == ',',
                Self::German | Self::Spanish => character == '.' || matches!(character, '\u{a0}' | '\u{202f}'),
                Self::French | Self::Russian | Self::Polish => space,
            }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
