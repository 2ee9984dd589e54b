//! Texts that are to be read in a certain way.

use crate::normalizer::Step;
use crate::numbers::english_ordinal;
use crate::spoken::{Language, number_words};

/// Reads a text as `kind` says; `None` if the kind is unknown or needs a language that has it.
pub(super) fn say_as(kind: &str, text: &str, language: Option<Language>) -> Option<String> {
    let by = |step: fn(Language) -> Step| {
        let step = step(language?);
        let knows = step.language().is_some_and(|language| step.knows(language));
        knows.then(|| step.apply(text))
    };
    match kind {
        "characters" | "spell-out" => {
            let characters = text.chars().filter(|character| !character.is_whitespace());
            let spaced = characters.map(String::from).collect::<Vec<_>>().join(" ");
            Some(language.map_or_else(|| spaced.clone(), |language| number_words(language, &spaced)))
        }
        "cardinal" | "number" => Some(number_words(language?, text)),
        "ordinal" => {
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            (language? == Language::English).then(|| english_ordinal(&digits)).flatten()
        }
        "date" => by(Step::Dates),
        "time" => by(Step::Times),
        "currency" => by(Step::Currency),
        "unit" => by(Step::Units),
        _ => None,
    }
}
