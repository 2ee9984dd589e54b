//! Months, days of the month and words between them, in each language that has dates.

use crate::numbers::english_ordinal;
use crate::spoken::{Gender, Language, whole_number, year};

const ENGLISH: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const GERMAN: [&str; 12] = [
    "Januar",
    "Februar",
    "März",
    "April",
    "Mai",
    "Juni",
    "Juli",
    "August",
    "September",
    "Oktober",
    "November",
    "Dezember",
];
const FRENCH: [&str; 12] = [
    "janvier",
    "février",
    "mars",
    "avril",
    "mai",
    "juin",
    "juillet",
    "août",
    "septembre",
    "octobre",
    "novembre",
    "décembre",
];
const SPANISH: [&str; 12] = [
    "enero",
    "febrero",
    "marzo",
    "abril",
    "mayo",
    "junio",
    "julio",
    "agosto",
    "septiembre",
    "octubre",
    "noviembre",
    "diciembre",
];

/// A day of the calendar, with or without a year.
#[derive(Clone, Copy)]
pub(super) struct Day {
    pub(super) year: Option<u64>,
    /// Month from 1.
    pub(super) month: usize,
    /// Day of the month from 1.
    pub(super) day: u64,
}

impl Day {
    /// Creates a day; `None` if the calendar does not have it. Leap years do not count: a 29th of February exists.
    pub(super) fn new(year: Option<u64>, month: u64, day: u64) -> Option<Self> {
        let days = match month {
            2 => 29,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        (1..=days).contains(&day).then_some(Self { year, month: month as usize, day })
    }

    /// Says the day. In English the month comes first if `month_first`.
    pub(super) fn words(self, language: Language, month_first: bool) -> String {
        let month = months(language)[self.month - 1];
        let ordinal = day_words(language, self.day);
        let (day, before_year) = match language {
            Language::English if month_first => (format!("{month} {ordinal}"), " "),
            Language::English => (format!("{ordinal} of {month}"), " "),
            Language::Spanish => (format!("{ordinal} de {month}"), " de "),
            _ => (format!("{ordinal} {month}"), " "),
        };
        match self.year {
            Some(number) => format!("{day}{before_year}{}", year(language, number)),
            None => day,
        }
    }
}

/// Returns the names of the months.
pub(super) fn months(language: Language) -> [&'static str; 12] {
    match language {
        Language::German => GERMAN,
        Language::French => FRENCH,
        Language::Spanish => SPANISH,
        _ => ENGLISH,
    }
}

/// Says the day of a month: an ordinal in English and German, and a cardinal in French and Spanish except for the first.
fn day_words(language: Language, day: u64) -> String {
    match (language, day) {
        (Language::German, _) => german_ordinal(day),
        (Language::French, 1) => "premier".into(),
        (Language::Spanish, 1) => "primero".into(),
        (Language::French | Language::Spanish, _) => whole_number(language, day, Gender::None),
        _ => english_ordinal(&day.to_string()).unwrap_or_default(),
    }
}

/// Says a German ordinal below 100 as it stands alone: `siebzehnter`.
fn german_ordinal(day: u64) -> String {
    match day {
        1 => "erster".into(),
        3 => "dritter".into(),
        7 => "siebter".into(),
        8 => "achter".into(),
        2..20 => whole_number(Language::German, day, Gender::None) + "ter",
        _ => whole_number(Language::German, day, Gender::None) + "ster",
    }
}
