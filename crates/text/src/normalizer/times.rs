//! Times of the day as words.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::patterns::{number_continues, number_precedes, replace_words};
use crate::spoken::{Gender, Language, whole_number};

/// `14:30`, `3:05 pm`; `14h30` in French; `14:30 Uhr` in German. Then `3pm`, `14 Uhr` and `14h`.
static CLOCK: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]{1,2})(:|h)([0-9]{2})( Uhr| ?[aApP]\.?[mM]\b\.?)?"));
static HOUR: LazyLock<Regex> = LazyLock::new(|| pattern(r"([0-9]{1,2})( Uhr| ?[aApP]\.?[mM]\b\.?)"));

fn pattern(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns of this file are valid")
}

/// Replaces times by words.
pub(super) fn apply(language: Language, text: &str) -> String {
    let read = |pattern: &Regex, text: &str, minute: Option<usize>, mark: usize| {
        replace_words(pattern, text, |captures, before, after| {
            let follows = number_continues(after) || number_precedes(before);
            if follows || minute.is_some() && &captures[2] == "h" && language != Language::French {
                return None;
            }
            time(language, captures, minute, mark)
        })
    };
    read(&HOUR, &read(&CLOCK, text, Some(3), 4), None, 2)
}

fn time(language: Language, captures: &Captures<'_>, minute: Option<usize>, mark: usize) -> Option<String> {
    let hour: u64 = captures[1].parse().ok().filter(|hour| *hour < 25)?;
    let minute: u64 = minute.map_or(Some(0), |minute| captures[minute].parse().ok()).filter(|minute| *minute < 60)?;
    let mark = captures.get(mark).map_or("", |mark| mark.as_str().trim());
    // Half of the day, for `am` and `pm`.
    let half = mark.to_lowercase().chars().next().filter(|half| matches!(half, 'a' | 'p'));
    if mark == "Uhr" && language != Language::German || half.is_some() && !(1..=12).contains(&hour) {
        return None;
    }
    let said = match language {
        Language::German => german(hour, minute),
        Language::French => french(hour, minute),
        Language::Spanish => spanish(hour, minute),
        _ => english(hour, minute, half.is_some()),
    };
    Some(half.map_or_else(|| said.clone(), |half| format!("{said} {half} m")))
}

fn english(hour: u64, minute: u64, is_half: bool) -> String {
    let words = |number| whole_number(Language::English, number, Gender::None);
    match (hour, minute) {
        (_, 0) if is_half => words(hour),
        (1..=12, 0) => format!("{} o'clock", words(hour)),
        (_, 0) => format!("{} hundred", words(hour)),
        (_, 1..10) => format!("{} oh {}", words(hour), words(minute)),
        _ => format!("{} {}", words(hour), words(minute)),
    }
}

fn german(hour: u64, minute: u64) -> String {
    let hour = format!("{} Uhr", whole_number(Language::German, hour, Gender::Masculine));
    if minute == 0 { hour } else { format!("{hour} {}", whole_number(Language::German, minute, Gender::None)) }
}

fn french(hour: u64, minute: u64) -> String {
    let name = if hour < 2 { "heure" } else { "heures" };
    let hour = format!("{} {name}", whole_number(Language::French, hour, Gender::Feminine));
    if minute == 0 { hour } else { format!("{hour} {}", whole_number(Language::French, minute, Gender::Feminine)) }
}

fn spanish(hour: u64, minute: u64) -> String {
    let name = if hour == 1 { "hora" } else { "horas" };
    let words = whole_number(Language::Spanish, hour, Gender::Feminine);
    if minute == 0 {
        return format!("{words} {name}");
    }
    format!("{words} {name} y {}", whole_number(Language::Spanish, minute, Gender::None))
}
