//! Names of the steps of a normalizer, and the errors of a list of names.

use std::fmt;
use std::str::FromStr;

use crate::spoken::Language;

/// One step of a [`Normalizer`](crate::Normalizer). The steps run in the order of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Composes characters (Unicode's NFC).
    Nfc,
    /// Composes characters and replaces compatible ones, such as ligatures and wide letters (NFKC).
    Nfkc,
    /// Replaces typographic quotation marks and apostrophes by `"` and `'`.
    Quotes,
    /// Replaces dashes and the minus sign by `-`.
    Dashes,
    /// Reads amounts of money.
    Currency(Language),
    /// Reads dates.
    Dates(Language),
    /// Reads times of the day.
    Times(Language),
    /// Reads numbers with a unit.
    Units(Language),
    /// Reads numbers between 1100 and 2099 as years, and `1980s` as a decade in English.
    Years(Language),
    /// Spells words of two to five capital letters, and expands abbreviations. A text of capitals stays as it is.
    Letters(Language),
    /// Reads all other numbers.
    Numbers(Language),
    /// Converts to lower case.
    Lowercase,
    /// Replaces punctuation by spaces, except for single marks inside a word.
    Punctuation,
    /// Collapses white space and trims both ends.
    Whitespace,
}

/// Smallest similarity of a name that is meant, from 0 to 1.
const SIMILARITY_MIN: f64 = 0.75;

/// Error in the steps of a [`Normalizer`](crate::Normalizer).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NormalizerError {
    /// A name is not the name of a step.
    #[error("there is no step `{name}`; {known}")]
    UnknownStep {
        /// The name.
        name: String,
        /// The most similar name of a step, or all names if none is similar, in words.
        known: String,
    },
    /// A step needs a language.
    #[error("step `{step}` needs a language, such as `{step}:en`; it knows {known}")]
    NoLanguage {
        /// Name of the step.
        step: &'static str,
        /// Codes of the languages that the step knows.
        known: String,
    },
    /// A step does not know a language.
    #[error("step `{step}` does not know the language `{language}`; it knows {known}")]
    UnknownLanguage {
        /// Name of the step.
        step: &'static str,
        /// Code of the language.
        language: String,
        /// Codes of the languages that the step knows.
        known: String,
    },
    /// A step that has no languages was given one.
    #[error("step `{0}` is the same in every language: write `{0}` alone")]
    NeedlessLanguage(&'static str),
    /// A step is named twice.
    #[error("step `{0}` is named twice")]
    Twice(&'static str),
    /// A normalizer was saved by another version of the steps.
    #[error("the normalizer has version {found}, but this program knows version {known}")]
    Version {
        /// Version in the file.
        found: u32,
        /// Version of this program.
        known: u32,
    },
}

impl Step {
    /// Returns all steps in their order, for a language.
    pub(super) fn all(language: Language) -> [Self; 14] {
        [
            Self::Nfc,
            Self::Nfkc,
            Self::Quotes,
            Self::Dashes,
            Self::Currency(language),
            Self::Dates(language),
            Self::Times(language),
            Self::Units(language),
            Self::Years(language),
            Self::Letters(language),
            Self::Numbers(language),
            Self::Lowercase,
            Self::Punctuation,
            Self::Whitespace,
        ]
    }

    /// Returns the name of the step, without a language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nfc => "nfc",
            Self::Nfkc => "nfkc",
            Self::Quotes => "quotes",
            Self::Dashes => "dashes",
            Self::Currency(_) => "currency",
            Self::Dates(_) => "dates",
            Self::Times(_) => "times",
            Self::Units(_) => "units",
            Self::Years(_) => "years",
            Self::Letters(_) => "letters",
            Self::Numbers(_) => "numbers",
            Self::Lowercase => "lowercase",
            Self::Punctuation => "punctuation",
            Self::Whitespace => "whitespace",
        }
    }

    /// Returns the language of the step; `None` for a step that is the same in every language.
    pub fn language(self) -> Option<Language> {
        match self {
            Self::Currency(language)
            | Self::Dates(language)
            | Self::Times(language)
            | Self::Units(language)
            | Self::Years(language)
            | Self::Letters(language)
            | Self::Numbers(language) => Some(language),
            _ => None,
        }
    }

    /// Returns whether the step knows a language. A step that is the same in every language knows all of them.
    pub fn knows(self, language: Language) -> bool {
        match self {
            Self::Dates(_) | Self::Times(_) | Self::Units(_) => {
                matches!(language, Language::English | Language::German | Language::French | Language::Spanish)
            }
            Self::Years(_) => matches!(language, Language::English | Language::German),
            _ => true,
        }
    }

    /// Returns the error for a language that the step does not know; an empty name means that it is missing.
    pub(super) fn unknown_language(self, language: &str) -> NormalizerError {
        let known = Language::ALL.into_iter().filter(|&language| self.knows(language)).map(Language::code);
        let (step, known) = (self.name(), known.collect::<Vec<_>>().join(", "));
        if language.is_empty() {
            return NormalizerError::NoLanguage { step, known };
        }
        NormalizerError::UnknownLanguage { step, language: language.into(), known }
    }
}

impl FromStr for Step {
    type Err = NormalizerError;

    fn from_str(text: &str) -> Result<Self, NormalizerError> {
        let (name, code) = text.split_once(':').map_or((text, None), |(name, code)| (name, Some(code)));
        let language = code.and_then(Language::from_code);
        let steps = Self::all(language.unwrap_or(Language::English));
        let Some(step) = steps.into_iter().find(|step| step.name() == name) else {
            let names = steps.map(Self::name);
            let similarity = |step: &&str| strsim::jaro_winkler(step, &name.to_lowercase());
            let nearest = names.into_iter().max_by(|a, b| similarity(a).total_cmp(&similarity(b)));
            let known = match nearest.filter(|nearest| similarity(nearest) >= SIMILARITY_MIN) {
                Some(nearest) => format!("the nearest one is `{nearest}`"),
                None => format!("the steps are {}", names.join(", ")),
            };
            return Err(NormalizerError::UnknownStep { name: name.into(), known });
        };
        match (step.language(), code, language) {
            (None, Some(_), _) => Err(NormalizerError::NeedlessLanguage(step.name())),
            (Some(_), _, None) => Err(step.unknown_language(code.unwrap_or_default())),
            (Some(_), _, Some(language)) if !step.knows(language) => Err(step.unknown_language(language.code())),
            _ => Ok(step),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.language() {
            Some(language) => write!(f, "{}:{language}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}
