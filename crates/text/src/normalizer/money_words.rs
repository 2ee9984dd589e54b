//! Names of currencies in each language.

use crate::spoken::{Gender, Language};

/// Forms of a word for one, for a few (in Russian and Polish), and for many.
pub(super) type Forms = [&'static str; 3];

/// A currency: its signs and codes, whether its unit is feminine, and its unit and hundredth part.
pub(super) struct Money {
    pub(super) signs: &'static [&'static str],
    pub(super) gender: Gender,
    pub(super) unit: Forms,
    /// Gender and forms of the hundredth part; empty forms if there is none in use.
    pub(super) part_gender: Gender,
    pub(super) part: Forms,
}

const DOLLAR: &[&str] = &["$", "USD", "US$"];
const EURO: &[&str] = &["€", "EUR"];
const POUND: &[&str] = &["£", "GBP"];
const YEN: &[&str] = &["¥", "JPY", "円"];
const RUPEE: &[&str] = &["₹", "INR"];
const RUBLE: &[&str] = &["₽", "RUB"];
const ZLOTY: &[&str] = &["zł", "PLN"];
const NONE: Forms = ["", "", ""];

use Gender::{Feminine as F, Masculine as M};

const fn money(signs: &'static [&'static str], gender: Gender, unit: Forms, part_gender: Gender, part: Forms) -> Money {
    Money { signs, gender, unit, part_gender, part }
}

const ENGLISH: &[Money] = &[
    money(DOLLAR, M, ["dollar", "", "dollars"], M, ["cent", "", "cents"]),
    money(EURO, M, ["euro", "", "euros"], M, ["cent", "", "cents"]),
    money(POUND, M, ["pound", "", "pounds"], M, ["penny", "", "pence"]),
    money(YEN, M, ["yen", "", "yen"], M, NONE),
    money(RUPEE, M, ["rupee", "", "rupees"], M, ["paisa", "", "paise"]),
    money(RUBLE, M, ["ruble", "", "rubles"], M, ["kopek", "", "kopeks"]),
    money(ZLOTY, M, ["zloty", "", "zlotys"], M, ["grosz", "", "groszy"]),
];
const GERMAN: &[Money] = &[
    money(DOLLAR, M, ["Dollar", "", "Dollar"], M, ["Cent", "", "Cent"]),
    money(EURO, M, ["Euro", "", "Euro"], M, ["Cent", "", "Cent"]),
    money(POUND, M, ["Pfund", "", "Pfund"], M, ["Penny", "", "Pence"]),
    money(YEN, M, ["Yen", "", "Yen"], M, NONE),
    money(RUPEE, F, ["Rupie", "", "Rupien"], M, ["Paisa", "", "Paise"]),
    money(RUBLE, M, ["Rubel", "", "Rubel"], F, ["Kopeke", "", "Kopeken"]),
    money(ZLOTY, M, ["Zloty", "", "Zloty"], M, ["Grosz", "", "Groszy"]),
];
const FRENCH: &[Money] = &[
    money(DOLLAR, M, ["dollar", "", "dollars"], M, ["cent", "", "cents"]),
    money(EURO, M, ["euro", "", "euros"], M, ["centime", "", "centimes"]),
    money(POUND, F, ["livre", "", "livres"], M, ["penny", "", "pence"]),
    money(YEN, M, ["yen", "", "yens"], M, NONE),
    money(RUPEE, F, ["roupie", "", "roupies"], M, ["paisa", "", "paisas"]),
    money(RUBLE, M, ["rouble", "", "roubles"], M, ["kopeck", "", "kopecks"]),
    money(ZLOTY, M, ["zloty", "", "zlotys"], M, ["grosz", "", "groszy"]),
];
const SPANISH: &[Money] = &[
    money(DOLLAR, M, ["dólar", "", "dólares"], M, ["centavo", "", "centavos"]),
    money(EURO, M, ["euro", "", "euros"], M, ["céntimo", "", "céntimos"]),
    money(POUND, F, ["libra", "", "libras"], M, ["penique", "", "peniques"]),
    money(YEN, M, ["yen", "", "yenes"], M, NONE),
    money(RUPEE, F, ["rupia", "", "rupias"], F, ["paisa", "", "paisas"]),
    money(RUBLE, M, ["rublo", "", "rublos"], M, ["kopek", "", "kopeks"]),
    money(ZLOTY, M, ["esloti", "", "eslotis"], M, ["grosz", "", "groszy"]),
];
const RUSSIAN: &[Money] = &[
    money(DOLLAR, M, ["доллар", "доллара", "долларов"], M, ["цент", "цента", "центов"]),
    money(EURO, M, ["евро", "евро", "евро"], M, ["цент", "цента", "центов"]),
    money(POUND, M, ["фунт", "фунта", "фунтов"], M, ["пенни", "пенни", "пенсов"]),
    money(YEN, F, ["иена", "иены", "иен"], M, NONE),
    money(RUPEE, F, ["рупия", "рупии", "рупий"], F, ["пайса", "пайсы", "пайс"]),
    money(RUBLE, M, ["рубль", "рубля", "рублей"], F, ["копейка", "копейки", "копеек"]),
    money(ZLOTY, M, ["злотый", "злотых", "злотых"], M, ["грош", "гроша", "грошей"]),
];
const POLISH: &[Money] = &[
    money(DOLLAR, M, ["dolar", "dolary", "dolarów"], M, ["cent", "centy", "centów"]),
    money(EURO, M, ["euro", "euro", "euro"], M, ["cent", "centy", "centów"]),
    money(POUND, M, ["funt", "funty", "funtów"], M, ["pens", "pensy", "pensów"]),
    money(YEN, M, ["jen", "jeny", "jenów"], M, NONE),
    money(RUPEE, F, ["rupia", "rupie", "rupii"], F, ["paisa", "paisy", "pais"]),
    money(RUBLE, M, ["rubel", "ruble", "rubli"], F, ["kopiejka", "kopiejki", "kopiejek"]),
    money(ZLOTY, M, ["złoty", "złote", "złotych"], M, ["grosz", "grosze", "groszy"]),
];
const HINDI: &[Money] = &[
    money(DOLLAR, M, ["डॉलर", "", "डॉलर"], M, ["सेंट", "", "सेंट"]),
    money(EURO, M, ["यूरो", "", "यूरो"], M, ["सेंट", "", "सेंट"]),
    money(POUND, M, ["पाउंड", "", "पाउंड"], M, ["पेनी", "", "पेंस"]),
    money(YEN, M, ["येन", "", "येन"], M, NONE),
    money(RUPEE, M, ["रुपया", "", "रुपये"], M, ["पैसा", "", "पैसे"]),
    money(RUBLE, M, ["रूबल", "", "रूबल"], M, ["कोपेक", "", "कोपेक"]),
    money(ZLOTY, M, ["ज़्लॉटी", "", "ज़्लॉटी"], M, ["ग्रोश", "", "ग्रोश"]),
];

/// Returns the currencies with their names in a language.
pub(super) fn currencies(language: Language) -> &'static [Money] {
    match language {
        Language::English => ENGLISH,
        Language::German => GERMAN,
        Language::French => FRENCH,
        Language::Spanish => SPANISH,
        Language::Russian => RUSSIAN,
        Language::Polish => POLISH,
        Language::Hindi => HINDI,
    }
}

/// Returns the word between the unit and its hundredth part.
pub(super) fn and(language: Language) -> &'static str {
    match language {
        Language::English => " and ",
        Language::German => " und ",
        Language::French => " et ",
        Language::Spanish => " con ",
        Language::Russian | Language::Polish | Language::Hindi => " ",
    }
}

/// Returns the words for large numbers that may stand between an amount and its currency, such as `$3 million`.
pub(super) fn large_words(language: Language) -> &'static [&'static str] {
    match language {
        Language::English => &["thousand", "million", "billion", "trillion"],
        Language::German => &["Millionen", "Million", "Milliarden", "Milliarde"],
        Language::French => &["millions", "million", "milliards", "milliard"],
        Language::Spanish => &["millones", "millón", "mil"],
        _ => &[],
    }
}
