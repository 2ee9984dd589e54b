//! French and Spanish numbers.

use super::grammar::Gender;

const FRENCH: [&str; 20] = [
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize",
    "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
];
const FRENCH_TENS: [&str; 7] = ["", "", "vingt", "trente", "quarante", "cinquante", "soixante"];
const FRENCH_LARGE: [&str; 5] = ["million", "milliard", "billion", "billiard", "trillion"];

/// Converts a whole number to French words, with the hyphens of the traditional spelling.
pub(super) fn french(number: u64, gender: Gender) -> String {
    let words = french_counting(number);
    match (gender, words.strip_suffix("un")) {
        (Gender::Feminine, Some(_)) => words + "e",
        _ => words,
    }
}

fn french_counting(number: u64) -> String {
    if number == 0 {
        return FRENCH[0].into();
    }
    let mut words: Vec<String> = Vec::new();
    for (place, name) in FRENCH_LARGE.iter().enumerate().rev() {
        match number / 1000u64.pow(place as u32 + 2) % 1000 {
            0 => {}
            1 => words.push(format!("un {name}")),
            count => words.push(format!("{} {name}s", french_group(count, true))),
        }
    }
    match number / 1000 % 1000 {
        0 => {}
        1 => words.push("mille".into()),
        // `quatre-vingt mille` and `deux cent mille`: no plural mark before `mille`.
        count => words.push(format!("{} mille", french_group(count, false))),
    }
    if !number.is_multiple_of(1000) {
        words.push(french_group(number % 1000, true));
    }
    words.join(" ")
}

/// Converts a number below 1000. `plural` permits the `s` of `cents` and `quatre-vingts`.
fn french_group(number: u64, plural: bool) -> String {
    let s = if plural { "s" } else { "" };
    let rest = number % 100;
    let hundreds = match (number / 100, rest) {
        (0, _) => return french_below_a_hundred(rest, s),
        (1, _) => "cent".to_owned(),
        (count, 0) => format!("{} cent{s}", FRENCH[count as usize]),
        (count, _) => format!("{} cent", FRENCH[count as usize]),
    };
    if rest == 0 { hundreds } else { format!("{hundreds} {}", french_below_a_hundred(rest, s)) }
}

fn french_below_a_hundred(number: u64, s: &str) -> String {
    let number = number as usize;
    match number {
        0..20 => FRENCH[number].to_owned(),
        71 => "soixante et onze".to_owned(),
        70..80 => format!("soixante-{}", FRENCH[number - 60]),
        80 => format!("quatre-vingt{s}"),
        81.. => format!("quatre-vingt-{}", FRENCH[number - 80]),
        _ => match (FRENCH_TENS[number / 10], number % 10) {
            (tens, 0) => tens.to_owned(),
            (tens, 1) => format!("{tens} et un"),
            (tens, ones) => format!("{tens}-{}", FRENCH[ones]),
        },
    }
}

const SPANISH: [&str; 30] = [
    "cero",
    "uno",
    "dos",
    "tres",
    "cuatro",
    "cinco",
    "seis",
    "siete",
    "ocho",
    "nueve",
    "diez",
    "once",
    "doce",
    "trece",
    "catorce",
    "quince",
    "dieciséis",
    "diecisiete",
    "dieciocho",
    "diecinueve",
    "veinte",
    "veintiuno",
    "veintidós",
    "veintitrés",
    "veinticuatro",
    "veinticinco",
    "veintiséis",
    "veintisiete",
    "veintiocho",
    "veintinueve",
];
const SPANISH_TENS: [&str; 10] =
    ["", "", "", "treinta", "cuarenta", "cincuenta", "sesenta", "setenta", "ochenta", "noventa"];
const SPANISH_HUNDREDS: [&str; 10] = [
    "",
    "ciento",
    "doscientos",
    "trescientos",
    "cuatrocientos",
    "quinientos",
    "seiscientos",
    "setecientos",
    "ochocientos",
    "novecientos",
];
const SPANISH_LARGE: [(&str, &str); 3] = [("millón", "millones"), ("billón", "billones"), ("trillón", "trillones")];

/// Converts a whole number to Spanish words on the long scale: 10⁹ is `mil millones`.
pub(super) fn spanish(number: u64, gender: Gender) -> String {
    if number == 0 {
        return SPANISH[0].into();
    }
    let mut words: Vec<String> = Vec::new();
    for (place, (one, many)) in SPANISH_LARGE.iter().enumerate().rev() {
        match number / 1_000_000u64.pow(place as u32 + 1) % 1_000_000 {
            0 => {}
            1 => words.push(format!("un {one}")),
            count => words.push(format!("{} {many}", spanish_million(count, Gender::Masculine))),
        }
    }
    if !number.is_multiple_of(1_000_000) {
        words.push(spanish_million(number % 1_000_000, gender));
    }
    words.join(" ")
}

/// Converts a number below a million, which is not 0.
fn spanish_million(number: u64, gender: Gender) -> String {
    let before_thousand = if gender == Gender::None { Gender::Masculine } else { gender };
    let thousands = match number / 1000 {
        0 => None,
        1 => Some("mil".to_owned()),
        count => Some(format!("{} mil", spanish_group(count, before_thousand))),
    };
    let rest = (!number.is_multiple_of(1000)).then(|| spanish_group(number % 1000, gender));
    thousands.into_iter().chain(rest).collect::<Vec<_>>().join(" ")
}

/// Converts a number below 1000, which is not 0.
fn spanish_group(number: u64, gender: Gender) -> String {
    if number == 100 {
        return "cien".into();
    }
    let (hundreds, rest) = ((number / 100) as usize, (number % 100) as usize);
    let one = |number: &str| match (gender, number.strip_suffix("uno")) {
        (Gender::Masculine, Some("veinti")) => "veintiún".to_owned(),
        (Gender::Masculine, Some(head)) => format!("{head}un"),
        (Gender::Feminine, Some(head)) => format!("{head}una"),
        _ => number.to_owned(),
    };
    let mut words = Vec::new();
    if hundreds > 0 {
        let word = SPANISH_HUNDREDS[hundreds];
        let feminine = word.strip_suffix("os").filter(|_| gender == Gender::Feminine);
        words.push(feminine.map_or_else(|| word.to_owned(), |head| format!("{head}as")));
    }
    match (rest, rest % 10) {
        (0, _) => {}
        (1..30, _) => words.push(one(SPANISH[rest])),
        (_, 0) => words.push(SPANISH_TENS[rest / 10].to_owned()),
        (_, ones) => words.push(format!("{} y {}", SPANISH_TENS[rest / 10], one(SPANISH[ones]))),
    }
    words.join(" ")
}
