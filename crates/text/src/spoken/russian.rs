//! Russian numbers, in the nominative case.

use super::grammar::{Gender, by_count};
use super::language::Language;

const ONES: [&str; 20] = [
    "ноль",
    "один",
    "два",
    "три",
    "четыре",
    "пять",
    "шесть",
    "семь",
    "восемь",
    "девять",
    "десять",
    "одиннадцать",
    "двенадцать",
    "тринадцать",
    "четырнадцать",
    "пятнадцать",
    "шестнадцать",
    "семнадцать",
    "восемнадцать",
    "девятнадцать",
];
const TENS: [&str; 10] =
    ["", "", "двадцать", "тридцать", "сорок", "пятьдесят", "шестьдесят", "семьдесят", "восемьдесят", "девяносто"];
const HUNDREDS: [&str; 10] =
    ["", "сто", "двести", "триста", "четыреста", "пятьсот", "шестьсот", "семьсот", "восемьсот", "девятьсот"];
const LARGE: [[&str; 3]; 6] = [
    ["тысяча", "тысячи", "тысяч"],
    ["миллион", "миллиона", "миллионов"],
    ["миллиард", "миллиарда", "миллиардов"],
    ["триллион", "триллиона", "триллионов"],
    ["квадриллион", "квадриллиона", "квадриллионов"],
    ["квинтиллион", "квинтиллиона", "квинтиллионов"],
];
/// Names of decimal fractions in the feminine: one tenth, several tenths.
const PARTS: [(&str, &str); 6] = [
    ("десятая", "десятых"),
    ("сотая", "сотых"),
    ("тысячная", "тысячных"),
    ("десятитысячная", "десятитысячных"),
    ("стотысячная", "стотысячных"),
    ("миллионная", "миллионных"),
];

/// Converts a whole number to words.
pub(super) fn whole(number: u64, gender: Gender) -> String {
    if number == 0 {
        return ONES[0].into();
    }
    let mut words: Vec<&str> = Vec::new();
    for (place, forms) in LARGE.iter().enumerate().rev() {
        let count = number / 1000u64.pow(place as u32 + 1) % 1000;
        if count > 0 {
            push_group(&mut words, count as usize, place == 0);
            words.push(by_count(Language::Russian, &count.to_string(), "", *forms));
        }
    }
    push_group(&mut words, (number % 1000) as usize, gender == Gender::Feminine);
    words.join(" ")
}

fn push_group(words: &mut Vec<&'static str>, number: usize, is_feminine: bool) {
    let (hundreds, rest) = (number / 100, number % 100);
    words.extend((hundreds > 0).then(|| HUNDREDS[hundreds]));
    let ones = if rest < 20 { rest } else { rest % 10 };
    words.extend((rest >= 20).then(|| TENS[rest / 10]));
    match (ones, is_feminine) {
        (0, _) => {}
        (1, true) => words.push("одна"),
        (2, true) => words.push("две"),
        (ones, _) => words.push(ONES[ones]),
    }
}

/// Converts a number with a fraction to words, such as `три целых четырнадцать сотых`. `None` if the fraction has
/// more than six digits.
pub(super) fn decimal(number: u64, fraction: &str) -> Option<String> {
    let (one, many) = PARTS.get(fraction.len().checked_sub(1)?)?;
    let part: u64 = fraction.parse().ok()?;
    let choose = |number: u64, one, many| if number % 10 == 1 && number % 100 != 11 { one } else { many };
    Some(format!(
        "{} {} {} {}",
        whole(number, Gender::Feminine),
        choose(number, "целая", "целых"),
        whole(part, Gender::Feminine),
        choose(part, one, many)
    ))
}
