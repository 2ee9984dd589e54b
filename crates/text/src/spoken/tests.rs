//! Numbers as words, compared with num2words and CLDR.

use proptest::prelude::*;

use super::*;
use crate::numbers::english_ordinal;

const JUDGE: &str = include_str!("../../../../fixtures/data/text/number_words.tsv");

#[test]
fn numbers_agree_with_num2words_and_cldr() {
    let mut differ = Vec::new();
    for line in JUDGE.lines() {
        let [language, kind, number, expected] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let language = Language::from_code(language).unwrap();
        let found = match kind {
            "cardinal" => cardinal(language, number).unwrap(),
            "ordinal" => english_ordinal(number).unwrap(),
            _ => year(language, number.parse().unwrap()),
        };
        if found != expected {
            differ.push(format!("{language} {kind} {number}: {found:?}, not {expected:?}"));
        }
    }
    assert!(differ.is_empty(), "{} of {}:\n{}", differ.len(), JUDGE.lines().count(), differ.join("\n"));
}

#[test]
fn numbers_are_found_with_the_marks_of_a_language() {
    for (language, text, expected) in [
        (
            Language::English,
            "1,234,567.5 and 1,25",
            "one million two hundred thirty four thousand five hundred sixty seven point five and one,twenty five",
        ),
        (Language::English, "-5 to 7-5, B2B (-3)", "minus five to seven-five, B two B (minus three)"),
        (Language::English, "2/3rds of the 21st", "two/thirds of the twenty first"),
        (
            Language::German,
            "1.234,5 und 3.14",
            "eintausendzweihundertvierunddreißig Komma fünf und drei Komma eins vier",
        ),
        (Language::German, "1,2,3", "eins,zwei,drei"),
        (Language::French, "1 234 567", "un million deux cent trente-quatre mille cinq cent soixante-sept"),
        (Language::French, "12\u{202f}000,5", "douze mille virgule cinq"),
        (Language::Spanish, "1.000.001", "un millón uno"),
        (Language::Russian, "2 000 и 0,5", "две тысячи и ноль целых пять десятых"),
        (Language::Polish, "22 000", "dwadzieścia dwa tysiące"),
        (Language::Hindi, "1,23,456 और २१", "एक लाख तेईस हज़ार चार सौ छप्पन और इक्कीस"),
        (
            Language::English,
            "18446744073709551616",
            "one eight four four six seven four four zero seven three seven zero nine five five one six one six",
        ),
    ] {
        assert_eq!(number_words(language, text), expected, "{text}");
    }
}

proptest! {
    #[test]
    fn no_digit_is_left(text in "[-−0-9.,’ a-zé०-९]{0,30}", language in 0..7usize) {
        let words = number_words(Language::ALL[language], &text);
        prop_assert!(!words.contains(char::is_numeric), "{}", words);
        prop_assert_eq!(number_words(Language::ALL[language], &words), words);
    }

    #[test]
    fn every_whole_number_has_words(number in any::<u64>(), language in 0..7usize) {
        let words = cardinal(Language::ALL[language], &number.to_string()).unwrap();
        prop_assert!(!words.is_empty() && !words.contains("  ") && words.trim() == words, "{words}");
    }

    #[test]
    fn any_text_is_accepted(text in "\\PC{0,40}", language in 0..7usize) {
        number_words(Language::ALL[language], &text);
        cardinal(Language::ALL[language], &text);
    }
}
