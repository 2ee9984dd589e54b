//! German numbers.

use super::grammar::Gender;

const ONES: [&str; 20] = [
    "",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
];
const TENS: [&str; 10] =
    ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"];
const LARGE: [(&str, &str); 5] = [
    ("Million", "Millionen"),
    ("Milliarde", "Milliarden"),
    ("Billion", "Billionen"),
    ("Billiarde", "Billiarden"),
    ("Trillion", "Trillionen"),
];

/// Converts a whole number to words. `einhundert` and `eintausend` are said in full.
pub(super) fn whole(number: u64, gender: Gender) -> String {
    match (number, gender) {
        (0, _) => return "null".into(),
        (1, Gender::Masculine) => return "ein".into(),
        (1, Gender::Feminine) => return "eine".into(),
        _ => {}
    }
    let mut words: Vec<String> = Vec::new();
    for (place, (one, many)) in LARGE.iter().enumerate().rev() {
        match number / 1000u64.pow(place as u32 + 2) % 1000 {
            0 => {}
            1 => words.push(format!("eine {one}")),
            count => words.push(format!("{} {many}", below_a_thousand(count, "eins"))),
        }
    }
    let (thousands, rest) = (number / 1000 % 1000, number % 1000);
    let mut last = String::new();
    if thousands > 0 {
        last = format!("{}tausend", below_a_thousand(thousands, "ein"));
    }
    last += &below_a_thousand(rest, "eins");
    if !last.is_empty() {
        words.push(last);
    }
    words.join(" ")
}

/// Converts a number below 1000; a single one at its end becomes `one`.
fn below_a_thousand(number: u64, one: &str) -> String {
    let (hundreds, rest) = ((number / 100) as usize, (number % 100) as usize);
    let head = if hundreds > 0 { format!("{}hundert", ONES[hundreds]) } else { String::new() };
    head + &match (rest / 10, rest % 10) {
        (0, 1) => one.to_owned(),
        (0 | 1, _) => ONES[rest].to_owned(),
        (tens, 0) => TENS[tens].to_owned(),
        (tens, ones) => format!("{}und{}", ONES[ones], TENS[tens]),
    }
}
