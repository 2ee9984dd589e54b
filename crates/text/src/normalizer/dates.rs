//! Dates as words.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::day_words::{Day, months};
use super::patterns::{number_continues, number_precedes, replace_words};
use crate::spoken::Language;

/// `2024-05-17`.
static ISO: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"));
/// `17.05.2024` and `17. 5. 2024`.
static POINTS: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]{1,2})\. ?([0-9]{1,2})\. ?([0-9]{4})"));
/// `5/17/2024` and `17-05-2024`.
static SLASHES: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]{1,2})([/-])([0-9]{1,2})([/-])([0-9]{4})"));

/// `May 17th 2024`, `Sept. 3, 1999`, `May 17`.
static MONTH_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    let months = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)";
    let ends = "(?:uary|ruary|ch|il|e|y|ust|t|tember|ober|ember)?";
    pattern(&format!(r"{months}{ends}\.? ([0-9]{{1,2}})(?:st|nd|rd|th)?(?:,? ([0-9]{{4}}))?"))
});
/// `17 May 2024`, `17th of May`.
static DAY_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    let months = months(Language::English).join("|");
    pattern(&format!(r"([0-9]{{1,2}})(?:st|nd|rd|th)?(?: of)? ({months})(?:,? ([0-9]{{4}}))?"))
});
static GERMAN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(r"([0-9]{{1,2}})\. ?({})(?: ([0-9]{{4}}))?", months(Language::German).join("|")))
});
static FRENCH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(r"([0-9]{{1,2}})(?:er)? ({})(?: ([0-9]{{4}}))?", months(Language::French).join("|")))
});
static SPANISH: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&format!(r"([0-9]{{1,2}})º? de ({})(?: del? ([0-9]{{4}}))?", months(Language::Spanish).join("|")))
});

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns of this file are valid")
}

/// Replaces dates by words.
pub(super) fn apply(language: Language, text: &str) -> String {
    let english = language == Language::English;
    let text =
        replace(&ISO, text, |c| Some(Day::new(number(c, 1), number(c, 2)?, number(c, 3)?)?.words(language, true)));
    let text =
        replace(&POINTS, &text, |c| Some(Day::new(number(c, 3), number(c, 2)?, number(c, 1)?)?.words(language, true)));
    let text = replace(&SLASHES, &text, |c| {
        if c[2] != c[4] {
            return None;
        }
        let (first, second) = (number(c, 1)?, number(c, 3)?);
        let month_first = Day::new(number(c, 5), first, second);
        let day_first = Day::new(number(c, 5), second, first);
        let [usual, other] = if english { [month_first, day_first] } else { [day_first, month_first] };
        Some(usual.or(other)?.words(language, true))
    });
    let named = |c: &Captures<'_>, day: usize, month: usize, month_first: bool| {
        let place = months(language).iter().position(|name| name.starts_with(&c[month]))?;
        Some(Day::new(number(c, 3), place as u64 + 1, number(c, day)?)?.words(language, month_first))
    };
    match language {
        Language::German => replace(&GERMAN, &text, |c| named(c, 1, 2, false)),
        Language::French => replace(&FRENCH, &text, |c| named(c, 1, 2, false)),
        Language::Spanish => replace(&SPANISH, &text, |c| named(c, 1, 2, false)),
        _ => {
            let text = replace(&MONTH_FIRST, &text, |c| named(c, 2, 1, true));
            replace(&DAY_FIRST, &text, |c| named(c, 1, 2, false))
        }
    }
}

fn replace(pattern: &Regex, text: &str, words: impl Fn(&Captures<'_>) -> Option<String>) -> String {
    replace_words(pattern, text, |captures, before, after| {
        if number_precedes(before) || number_continues(after) { None } else { words(captures) }
    })
}

fn number(captures: &Captures<'_>, group: usize) -> Option<u64> {
    captures.get(group)?.as_str().parse().ok()
}
