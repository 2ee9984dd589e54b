//! Steps of a normalizer on texts of each language, and properties of every step.

use proptest::prelude::*;

use super::*;

fn check(names: &str, cases: &[(&str, &str)]) {
    let normalizer: Normalizer = names.parse().unwrap();
    for (text, expected) in cases {
        assert_eq!(normalizer.apply(text), *expected, "{names} on {text:?}");
    }
}

#[test]
fn amounts_of_money_are_read() {
    check(
        "currency:en",
        &[
            (
                "$3.50, €20, £1,000,000 and 5 EUR",
                "three dollars and fifty cents, twenty euros, one million pounds and five euros",
            ),
            ("$1 $0.50 -$5 $0.01 $2.00", "one dollar fifty cents minus five dollars one cent two dollars"),
            ("$3.5 million, ¥500, 10 USD.", "three point five million dollars, five hundred yen, ten dollars."),
            ("$3.125 US$7 £0.01", "three point one two five dollars seven dollars one penny"),
            ("5 EUROS, EURO 5, 5$x", "5 EUROS, EURO 5, five dollars x"),
        ],
    );
    check(
        "currency:de",
        &[("3,50 €, 1 €, 1.000 Euro, 5 EUR", "drei Euro und fünfzig Cent, ein Euro, 1.000 Euro, fünf Euro")],
    );
    check(
        "currency:fr",
        &[("1 000 000 €, 1 £, 3,50 €", "un million d'euros, une livre, trois euros et cinquante centimes")],
    );
    check(
        "currency:es",
        &[(
            "21 €, 21 £, 1.000.000 $, 3,50 €",
            "veintiún euros, veintiuna libras, un millón de dólares, tres euros con cincuenta céntimos",
        )],
    );
    check(
        "currency:ru",
        &[(
            "1 ₽, 22 ₽, 5,01 ₽, 1,5 $",
            "один рубль, двадцать два рубля, пять рублей одна копейка, один доллар пятьдесят центов",
        )],
    );
    check(
        "currency:pl",
        &[("1 zł, 3,50 zł, 25 PLN", "jeden złoty, trzy złote pięćdziesiąt groszy, dwadzieścia pięć złotych")],
    );
    check("currency:hi", &[("₹1, ₹3.50", "एक रुपया, तीन रुपये पचास पैसे")]);
}

#[test]
fn dates_are_read() {
    check(
        "dates:en",
        &[
            ("2024-05-17", "May seventeenth twenty twenty four"),
            (
                "on May 17th 2024, Sept. 3, 1905 and May 2",
                "on May seventeenth twenty twenty four, September third nineteen oh five and May second",
            ),
            (
                "5/17/2024 5/6/2024 17/5/2024",
                "May seventeenth twenty twenty four May sixth twenty twenty four May seventeenth twenty twenty four",
            ),
            ("17 May 2024, the 17th of May", "seventeenth of May twenty twenty four, the seventeenth of May"),
            ("2024-13-40, 1-2024-05-17-3, 30/30/2024, May 40", "2024-13-40, 1-2024-05-17-3, 30/30/2024, May 40"),
            ("2024-05-17.", "May seventeenth twenty twenty four."),
        ],
    );
    check(
        "dates:de",
        &[
            (
                "17.05.2024, am 3. Mai 1984",
                "siebzehnter Mai zweitausendvierundzwanzig, am dritter Mai neunzehnhundertvierundachtzig",
            ),
            ("5/6/2024", "fünfter Juni zweitausendvierundzwanzig"),
        ],
    );
    check(
        "dates:fr",
        &[(
            "le 1er mai 2024, 17/05/2024",
            "le premier mai deux mille vingt-quatre, dix-sept mai deux mille vingt-quatre",
        )],
    );
    check("dates:es", &[("el 17 de mayo de 2024", "el diecisiete de mayo de dos mil veinticuatro")]);
}

#[test]
fn times_units_and_years_are_read() {
    check(
        "times:en",
        &[
            ("14:30, 3pm, 3:05 p.m., 9:00", "fourteen thirty, three p m, three oh five p m, nine o'clock"),
            ("25:30 1:2:30 14:75 13pm", "25:30 1:2:30 14:75 13pm"),
        ],
    );
    check("times:de", &[("14:30 Uhr, 1 Uhr, 7:00", "vierzehn Uhr dreißig, ein Uhr, sieben Uhr")]);
    check("times:fr", &[("14h30, 1:21", "quatorze heures trente, une heure vingt et une")]);
    check("times:es", &[("1:00, 14:30", "una hora, catorce horas y treinta")]);
    check(
        "units:en",
        &[
            (
                "5 km, 1 km, 20%, 3.5 GB, -4°C",
                "five kilometers, one kilometer, twenty percent, three point five gigabytes, minus four degrees Celsius",
            ),
            ("5 kmx 5 men 100 km/h", "5 kmx 5 men one hundred kilometers per hour"),
            ("5 km3 km, x5%", "5 km3 km, x5%"),
        ],
    );
    check("units:de", &[("1 h, 1,5 kg", "eine Stunde, eins Komma fünf Kilogramm")]);
    check("units:fr", &[("1 h, 21 min, 1,5 l", "une heure, vingt et une minutes, un virgule cinq litre")]);
    check("units:es", &[("21 km, 5 %", "veintiún kilómetros, cinco por ciento")]);
    check(
        "years:en",
        &[
            ("in 1984 and 2007, the 1980s", "in nineteen eighty four and two thousand seven, the nineteen eighties"),
            ("1,984 1984.5 a1984 19845 -1984", "1,984 1984.5 a1984 19845 -1984"),
        ],
    );
}

#[test]
fn capitals_are_spelled_and_abbreviations_expanded() {
    check(
        "letters:en",
        &[
            ("BBC", "b b c"),
            ("The BBC's MP3 of NASA, U.S.A. and U.S. laws", "The b b c's m p 3 of NASA, u s a and u s laws"),
            (
                "Dr. Lee of St. Ives, Main St. e.g. No. 5. No.",
                "doctor Lee of saint Ives, Main street for example number 5. No.",
            ),
            ("THE BBC SAID", "THE BBC SAID"),
            ("iPhone ABCDEFG aBBC", "iPhone ABCDEFG aBBC"),
        ],
    );
    check("letters:de", &[("z. B. das ZDF", "zum beispiel das z d f")]);
    check("letters:ru", &[("в США", "в с ш а")]);
}

#[test]
fn steps_work_together_in_any_order_of_names() {
    check(
        "whitespace,punctuation,lowercase,numbers:en,units:en,times:en,dates:en,currency:en,letters:en,dashes,quotes,nfkc",
        &[(
            "Mr. Fox—on 2024-05-17, 14:30—paid  “$3.50” for 5 km (½).",
            "mister fox on may seventeenth twenty twenty four fourteen thirty paid three dollars and fifty cents for five kilometers one⁄two",
        )],
    );
    check("quotes,dashes", &[("“don’t” – 5−3", "\"don't\" - 5-3")]);
    let complete = Normalizer::complete(Language::Russian);
    assert_eq!(
        complete.to_string(),
        "nfkc,quotes,dashes,currency:ru,letters:ru,numbers:ru,lowercase,punctuation,whitespace"
    );
}

#[test]
fn a_model_remembers_names_and_version() {
    let normalizer: Normalizer = "numbers:de,lowercase".parse().unwrap();
    let saved = serde_json::to_string(&normalizer).unwrap();
    assert_eq!(saved, r#"{"version":1,"steps":["numbers:de","lowercase"]}"#);
    assert_eq!(serde_json::from_str::<Normalizer>(&saved).unwrap(), normalizer);
    let newer = saved.replace("\"version\":1", "\"version\":2");
    let error = serde_json::from_str::<Normalizer>(&newer).unwrap_err().to_string();
    assert!(error.contains("the normalizer has version 2, but this program knows version 1"), "{error}");
}

#[test]
fn errors_name_the_nearest_step_and_the_languages() {
    for (names, expected) in [
        ("lower", "there is no step `lower`; the nearest one is `lowercase`"),
        ("NFC", "there is no step `NFC`; the nearest one is `nfc`"),
        (
            "klingon",
            "there is no step `klingon`; the steps are nfc, nfkc, quotes, dashes, currency, dates, times, units, years, letters, \
             numbers, lowercase, punctuation, whitespace",
        ),
        ("numbers", "step `numbers` needs a language, such as `numbers:en`; it knows en, de, fr, es, ru, pl, hi"),
        ("dates:ru", "step `dates` does not know the language `ru`; it knows en, de, fr, es"),
        ("numbers:xx", "step `numbers` does not know the language `xx`; it knows en, de, fr, es, ru, pl, hi"),
        ("nfc:en", "step `nfc` is the same in every language: write `nfc` alone"),
        ("numbers:en,nfc,numbers:de", "step `numbers` is named twice"),
    ] {
        assert_eq!(names.parse::<Normalizer>().unwrap_err().to_string(), expected, "{names}");
    }
}

/// Texts with much of what the steps look for.
const TEXTS: &str = "([-0-9.,:/ €$%’'\"A-Zamphst²٣]|[0-9]{4}-[0-9]{2}-[0-9]{2}|May |Dr\\.|St\\. | km|é|\\PC){0,20}";

proptest! {
    #[test]
    fn every_step_is_idempotent(text in TEXTS, language in 0..7usize, step in 0..14usize) {
        let language = Language::ALL[language];
        let step = Step::all(language)[step];
        if !step.language().is_none_or(|language| step.knows(language)) {
            return Ok(());
        }
        let once = step.apply(&text);
        prop_assert_eq!(step.apply(&once), once);
    }

    #[test]
    fn complete_normalization_is_idempotent_and_leaves_no_digit(text in TEXTS, language in 0..7usize) {
        let normalizer = Normalizer::complete(Language::ALL[language]);
        let once = normalizer.apply(&text);
        prop_assert_eq!(normalizer.apply(&once), once.clone());
        prop_assert!(!once.contains(|character: char| character.is_ascii_digit()), "{}", once);
    }

    #[test]
    fn any_list_of_names_is_accepted_or_refused(names in "[a-z:, ]{0,30}") {
        let _ = names.parse::<Normalizer>();
    }
}
