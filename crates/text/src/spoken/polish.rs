//! Polish numbers, in the nominative case.

use super::grammar::{Gender, by_count};
use super::language::Language;

const ONES: [&str; 20] = [
    "zero",
    "jeden",
    "dwa",
    "trzy",
    "cztery",
    "pięć",
    "sześć",
    "siedem",
    "osiem",
    "dziewięć",
    "dziesięć",
    "jedenaście",
    "dwanaście",
    "trzynaście",
    "czternaście",
    "piętnaście",
    "szesnaście",
    "siedemnaście",
    "osiemnaście",
    "dziewiętnaście",
];
const TENS: [&str; 10] = [
    "",
    "",
    "dwadzieścia",
    "trzydzieści",
    "czterdzieści",
    "pięćdziesiąt",
    "sześćdziesiąt",
    "siedemdziesiąt",
    "osiemdziesiąt",
    "dziewięćdziesiąt",
];
const HUNDREDS: [&str; 10] =
    ["", "sto", "dwieście", "trzysta", "czterysta", "pięćset", "sześćset", "siedemset", "osiemset", "dziewięćset"];
const LARGE: [[&str; 3]; 6] = [
    ["tysiąc", "tysiące", "tysięcy"],
    ["milion", "miliony", "milionów"],
    ["miliard", "miliardy", "miliardów"],
    ["bilion", "biliony", "bilionów"],
    ["biliard", "biliardy", "biliardów"],
    ["trylion", "tryliony", "trylionów"],
];

/// Converts a whole number to words.
pub(super) fn whole(number: u64, gender: Gender) -> String {
    match (number, gender) {
        (0, _) => return ONES[0].into(),
        (1, Gender::Feminine) => return "jedna".into(),
        _ => {}
    }
    let mut words: Vec<&str> = Vec::new();
    for (place, forms) in LARGE.iter().enumerate().rev() {
        let count = number / 1000u64.pow(place as u32 + 1) % 1000;
        if count > 1 {
            push_group(&mut words, count as usize, false);
        }
        if count > 0 {
            words.push(by_count(Language::Polish, &count.to_string(), "", *forms));
        }
    }
    push_group(&mut words, (number % 1000) as usize, gender == Gender::Feminine);
    words.join(" ")
}

/// Reads a fraction: its leading zeros, then the rest as one number.
pub(super) fn fraction(digits: &str) -> String {
    let rest = digits.trim_start_matches('0');
    let zeros = std::iter::repeat_n(ONES[0].to_owned(), digits.len() - rest.len());
    let number = rest.parse().ok().map(|number| whole(number, Gender::None));
    let one_by_one = || rest.bytes().map(|digit| ONES[usize::from(digit - b'0')]).collect::<Vec<_>>().join(" ");
    let number = (!rest.is_empty()).then(|| number.unwrap_or_else(one_by_one));
    zeros.chain(number).collect::<Vec<_>>().join(" ")
}

fn push_group(words: &mut Vec<&'static str>, number: usize, is_feminine: bool) {
    let (hundreds, rest) = (number / 100, number % 100);
    words.extend((hundreds > 0).then(|| HUNDREDS[hundreds]));
    let ones = if rest < 20 { rest } else { rest % 10 };
    words.extend((rest >= 20).then(|| TENS[rest / 10]));
    match (ones, is_feminine) {
        (0, _) => {}
        (2, true) => words.push("dwie"),
        (ones, _) => words.push(ONES[ones]),
    }
}
