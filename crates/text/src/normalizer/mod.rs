//! Normalization of a text by named steps.

mod currency;
mod dates;
mod day_words;
mod letters;
mod money_words;
mod patterns;
mod step;
#[cfg(test)]
mod tests;
mod times;
mod unicode;
mod units;
mod years;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::normalize::without_punctuation;
use crate::spoken::{Language, number_words};
pub use step::{NormalizerError, Step};

/// Normalization of a text by named steps, the same for training, evaluation and speech synthesis.
///
/// Steps are named with commas between them; a step that knows languages has one after a colon. The name of a language
/// alone, such as `en`, stands for [all steps](Self::complete) that know it. The steps run in the
/// order of [`Step`], whatever the order of their names: only in this order each step finds what it looks for. For
/// example `$3.50` must be read before numbers are, and `BBC` before letters lose their case. [`steps`](Self::steps)
/// and `Display` show the order.
///
/// | step | languages | example |
/// |---|---|---|
/// | `nfc`, `nfkc` | | one code point for `é`; `nfkc` also makes `ﬁ` `fi` and `²` `2` |
/// | `quotes` | | `“don’t”` becomes `"don't"` |
/// | `dashes` | | `–` and `−` become `-`; `—` becomes `-` with spaces |
/// | `currency` | all | `$3.50` becomes `three dollars and fifty cents` |
/// | `dates` | en de fr es | `2024-05-17` becomes `May seventeenth twenty twenty four` |
/// | `times` | en de fr es | `14:30` becomes `fourteen thirty` |
/// | `units` | en de fr es | `5 km` becomes `five kilometers` |
/// | `years` | en de | `in 1984` becomes `in nineteen eighty four` |
/// | `letters` | all | `BBC` becomes `b b c`; abbreviations of en de fr es, such as `Dr.`, become words |
/// | `numbers` | all | `1,250` becomes `one thousand two hundred fifty`; ordinals such as `1st` in en |
/// | `lowercase` | | lower case |
/// | `punctuation` | | marks that are not inside a word become spaces |
/// | `whitespace` | | one space between words, none at the ends |
///
/// `all` languages are those of [`Language`]. A date such as `5/6/2024` has the month first in English, and the day
/// first in all other languages; a number above 12 is always the day.
///
/// ```
/// use plimsoll_text::Normalizer;
///
/// let normalizer: Normalizer = "nfc,whitespace,lowercase,numbers:en,currency:en,dates:en,letters:en,punctuation".parse()?;
/// assert_eq!(normalizer.apply("Dr. Lee paid  $3.50 (on May 17th 2024)."),
///     "doctor lee paid three dollars and fifty cents on may seventeenth twenty twenty four");
/// assert_eq!(normalizer.to_string(), "nfc,currency:en,dates:en,letters:en,numbers:en,lowercase,punctuation,whitespace");
///
/// let wrong = "number:en".parse::<Normalizer>().unwrap_err();
/// assert_eq!(wrong.to_string(), "there is no step `number`; the nearest one is `numbers`");
/// # Ok::<(), plimsoll_text::NormalizerError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SavedNormalizer", into = "SavedNormalizer")]
pub struct Normalizer {
    steps: Vec<Step>,
}

impl Normalizer {
    /// Version of the steps. It rises when a step gives other texts than before.
    pub const VERSION: u32 = 1;

    /// Creates the normalizer with these steps.
    ///
    /// # Errors
    /// When a step is named twice, or does not know its language.
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Result<Self, NormalizerError> {
        let mut steps: Vec<Step> = steps.into_iter().collect();
        steps.sort();
        if let Some(pair) = steps.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            return Err(NormalizerError::Twice(pair[0].name()));
        }
        match steps.iter().find(|step| step.language().is_some_and(|language| !step.knows(language))) {
            Some(step) => Err(step.unknown_language(step.language().map(Language::code).unwrap_or_default())),
            None => Ok(Self { steps }),
        }
    }

    /// Creates the normalizer with every step that knows this language, for texts that are to be spoken.
    pub fn complete(language: Language) -> Self {
        let steps = Step::all(language).into_iter();
        let chosen = |step: &Step| *step != Step::Nfc && step.language().is_none_or(|language| step.knows(language));
        Self { steps: steps.filter(chosen).collect() }
    }

    /// Returns the steps in the order in which they run.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Normalizes a text.
    ///
    /// A text that was normalized stays as it is, if the steps contain `lowercase`, or if they do not contain
    /// `letters`.
    pub fn apply(&self, text: &str) -> String {
        self.steps.iter().fold(text.to_owned(), |text, step| step.apply(&text))
    }
}

impl Step {
    /// Applies this step alone.
    pub fn apply(self, text: &str) -> String {
        match self {
            Self::Nfc => unicode::nfc(text),
            Self::Nfkc => unicode::nfkc(text),
            Self::Quotes => unicode::fold_quotes(text),
            Self::Dashes => unicode::fold_dashes(text),
            Self::Currency(language) => currency::apply(language, text),
            Self::Dates(language) => dates::apply(language, text),
            Self::Times(language) => times::apply(language, text),
            Self::Units(language) => units::apply(language, text),
            Self::Years(language) => years::apply(language, text),
            Self::Letters(language) => letters::apply(language, text),
            Self::Numbers(language) => number_words(language, text),
            Self::Lowercase => text.to_lowercase(),
            Self::Punctuation => without_punctuation(text),
            Self::Whitespace => text.split_whitespace().collect::<Vec<_>>().join(" "),
        }
    }
}

impl FromStr for Normalizer {
    type Err = NormalizerError;

    fn from_str(names: &str) -> Result<Self, NormalizerError> {
        if let Some(language) = Language::from_code(names.trim()) {
            return Ok(Self::complete(language));
        }
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self::new(names.map(str::parse).collect::<Result<Vec<Step>, _>>()?)
    }
}

impl fmt::Display for Normalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.steps.iter().map(Step::to_string).collect();
        f.write_str(&names.join(","))
    }
}

/// Serialized form of a normalizer, as a model remembers it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedNormalizer {
    version: u32,
    steps: Vec<String>,
}

impl TryFrom<SavedNormalizer> for Normalizer {
    type Error = NormalizerError;

    fn try_from(saved: SavedNormalizer) -> Result<Self, NormalizerError> {
        if saved.version != Self::VERSION {
            return Err(NormalizerError::Version { found: saved.version, known: Self::VERSION });
        }
        Self::new(saved.steps.iter().map(|name| name.parse()).collect::<Result<Vec<Step>, _>>()?)
    }
}

impl From<Normalizer> for SavedNormalizer {
    fn from(normalizer: Normalizer) -> Self {
        Self { version: Normalizer::VERSION, steps: normalizer.steps.iter().map(Step::to_string).collect() }
    }
}
