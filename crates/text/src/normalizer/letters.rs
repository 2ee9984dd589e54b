//! Abbreviations as words, and capitals spelled as letters.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::patterns::replace_words;
use crate::spoken::Language;

/// Abbreviations and their words. One with a capital is found with exactly this case.
const ENGLISH: &[(&str, &str)] = &[
    ("Mr.", "mister"),
    ("Mrs.", "missus"),
    ("Dr.", "doctor"),
    ("Prof.", "professor"),
    ("Jr.", "junior"),
    ("Sr.", "senior"),
    ("Capt.", "captain"),
    ("Gen.", "general"),
    ("Lt.", "lieutenant"),
    ("Sgt.", "sergeant"),
    ("Rev.", "reverend"),
    ("Gov.", "governor"),
    ("Sen.", "senator"),
    ("Mt.", "mount"),
    ("Ave.", "avenue"),
    ("Inc.", "incorporated"),
    ("Ltd.", "limited"),
    ("Corp.", "corporation"),
    ("etc.", "et cetera"),
    ("vs.", "versus"),
    ("e.g.", "for example"),
    ("i.e.", "that is"),
    ("approx.", "approximately"),
];
const GERMAN: &[(&str, &str)] = &[
    ("Dr.", "doktor"),
    ("Prof.", "professor"),
    ("z. B.", "zum beispiel"),
    ("z.B.", "zum beispiel"),
    ("d. h.", "das heißt"),
    ("d.h.", "das heißt"),
    ("u. a.", "unter anderem"),
    ("u.a.", "unter anderem"),
    ("usw.", "und so weiter"),
    ("bzw.", "beziehungsweise"),
    ("ca.", "circa"),
    ("Nr.", "nummer"),
    ("St.", "sankt"),
    ("vgl.", "vergleiche"),
    ("inkl.", "inklusive"),
    ("evtl.", "eventuell"),
];
const FRENCH: &[(&str, &str)] = &[
    ("Mme", "madame"),
    ("Mlle", "mademoiselle"),
    ("Dr", "docteur"),
    ("etc.", "et cetera"),
    ("p. ex.", "par exemple"),
    ("p.ex.", "par exemple"),
    ("c.-à-d.", "c'est-à-dire"),
    ("env.", "environ"),
];
const SPANISH: &[(&str, &str)] = &[
    ("Sr.", "señor"),
    ("Sra.", "señora"),
    ("Srta.", "señorita"),
    ("Dr.", "doctor"),
    ("Dra.", "doctora"),
    ("Ud.", "usted"),
    ("Uds.", "ustedes"),
    ("etc.", "etcétera"),
    ("p. ej.", "por ejemplo"),
    ("p.ej.", "por ejemplo"),
    ("EE. UU.", "estados unidos"),
    ("EE.UU.", "estados unidos"),
];
/// Words of capitals that are said as words, not letter by letter.
const SAID_AS_WORDS: &[&str] = &[
    "NASA", "NATO", "AIDS", "OPEC", "FIFA", "UEFA", "LASER", "RADAR", "SONAR", "SCUBA", "COVID", "RAM", "ROM", "PIN",
    "SIM", "JPEG", "GIF", "ASCII", "CUDA", "OTAN", "ONU", "SIDA", "OVNI", "TÜV",
];

/// Dotted capitals such as `U.S.A.`, or two to five capitals, also before digits.
static CAPITALS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:\p{Lu}\.){2,6}|\p{Lu}{2,5}[0-9]{0,8}").expect("the pattern is valid"));
static ABBREVIATIONS: LazyLock<[(Language, Regex); 4]> = LazyLock::new(|| {
    [Language::English, Language::German, Language::French, Language::Spanish].map(|language| {
        let escaped: Vec<String> = abbreviations(language).iter().map(|(short, _)| regex::escape(short)).collect();
        (language, Regex::new(&escaped.join("|")).expect("the abbreviations are escaped"))
    })
});
/// `St.` is a saint before a capital, and a street otherwise. `No.` is a number before a digit.
static SAINT_OR_NUMBER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"St\.|No\.").expect("the pattern is valid"));

fn abbreviations(language: Language) -> &'static [(&'static str, &'static str)] {
    match language {
        Language::English => ENGLISH,
        Language::German => GERMAN,
        Language::French => FRENCH,
        Language::Spanish => SPANISH,
        _ => &[],
    }
}

/// Expands abbreviations, then spells words of capitals. A text with several words, all in capitals, stays as it is.
pub(super) fn apply(language: Language, text: &str) -> String {
    if is_all_capitals(text) {
        return text.to_owned();
    }
    let mut text = text.to_owned();
    if let Some((_, pattern)) = ABBREVIATIONS.iter().find(|(of, _)| *of == language) {
        text = replace_words(pattern, &text, |captures, _, _| {
            let list = abbreviations(language).iter();
            list.clone().find(|(short, _)| *short == &captures[0]).map(|(_, words)| (*words).to_owned())
        });
    }
    if language == Language::English {
        text = replace_words(&SAINT_OR_NUMBER, &text, |captures, _, after| saint_or_number(captures, after));
    }
    replace_words(&CAPITALS, &text, |captures, before, after| spell(&captures[0], before, after))
}

fn saint_or_number(captures: &Captures<'_>, after: &str) -> Option<String> {
    let next = after.trim_start().chars().next();
    match (&captures[0], next) {
        ("No.", Some(next)) if next.is_numeric() => Some("number".into()),
        ("No.", _) => None,
        (_, Some(next)) if next.is_uppercase() => Some("saint".into()),
        _ => Some("street".into()),
    }
}

/// Spells a word, unless it is part of a longer word or is said as a word.
fn spell(word: &str, before: &str, after: &str) -> Option<String> {
    let is_letter = |neighbor: Option<char>| neighbor.is_some_and(char::is_alphabetic);
    let is_part = is_letter(before.chars().next_back()) || is_letter(after.chars().next());
    if is_part || SAID_AS_WORDS.contains(&word) {
        return None;
    }
    let (letters, digits) =
        word.split_at(word.find(|character: char| character.is_ascii_digit()).unwrap_or(word.len()));
    let letters = letters.chars().filter(|character| *character != '.').map(|letter| letter.to_lowercase().to_string());
    let digits = (!digits.is_empty()).then(|| digits.to_owned());
    Some(letters.chain(digits).collect::<Vec<_>>().join(" "))
}

/// Returns whether a text has several words of letters, and no lower case.
fn is_all_capitals(text: &str) -> bool {
    let has_letters = |word: &&str| word.chars().filter(|character| character.is_uppercase()).count() > 1;
    !text.contains(char::is_lowercase) && text.split_whitespace().filter(has_letters).count() > 1
}
