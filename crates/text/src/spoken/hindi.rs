//! Hindi numbers: every number below 100 has a word of its own. The spelling is that of Unicode's CLDR.

const WORDS: [&str; 100] = [
    "शून्य",
    "एक",
    "दो",
    "तीन",
    "चार",
    "पाँच",
    "छह",
    "सात",
    "आठ",
    "नौ",
    "दस",
    "ग्यारह",
    "बारह",
    "तेरह",
    "चौदह",
    "पन्द्रह",
    "सोलह",
    "सत्रह",
    "अठारह",
    "उन्नीस",
    "बीस",
    "इक्कीस",
    "बाईस",
    "तेईस",
    "चौबीस",
    "पच्चीस",
    "छब्बीस",
    "सत्ताईस",
    "अट्ठाईस",
    "उनतीस",
    "तीस",
    "इकतीस",
    "बत्तीस",
    "तैंतीस",
    "चौंतीस",
    "पैंतीस",
    "छत्तीस",
    "सैंतीस",
    "अड़तीस",
    "उनतालीस",
    "चालीस",
    "इकतालीस",
    "बयालीस",
    "तैंतालीस",
    "चौवालीस",
    "पैंतालीस",
    "छियालीस",
    "सैंतालीस",
    "अड़तालीस",
    "उनचास",
    "पचास",
    "इक्यावन",
    "बावन",
    "तिरेपन",
    "चौवन",
    "पचपन",
    "छप्पन",
    "सत्तावन",
    "अट्ठावन",
    "उनसठ",
    "साठ",
    "इकसठ",
    "बासठ",
    "तिरेसठ",
    "चौंसठ",
    "पैंसठ",
    "छियासठ",
    "सड़सठ",
    "अड़सठ",
    "उनहत्तर",
    "सत्तर",
    "इकहत्तर",
    "बहत्तर",
    "तिहत्तर",
    "चौहत्तर",
    "पचहत्तर",
    "छिहत्तर",
    "सतहत्तर",
    "अठहत्तर",
    "उनासी",
    "अस्सी",
    "इक्यासी",
    "बयासी",
    "तिरासी",
    "चौरासी",
    "पचासी",
    "छियासी",
    "सत्तासी",
    "अट्ठासी",
    "नवासी",
    "नब्बे",
    "इक्यानबे",
    "बानबे",
    "तिरानबे",
    "चौरानबे",
    "पंचानबे",
    "छियानबे",
    "सत्तानबे",
    "अट्ठानबे",
    "निन्यानबे",
];
/// Names of 10³, 10⁵, 10⁷ and so on, in steps of a hundred.
const LARGE: [&str; 7] = ["हज़ार", "लाख", "करोड़", "अरब", "खरब", "नील", "पद्म"];

/// Converts a whole number to words, on the Indian scale: 10⁵ is `लाख`, 10⁷ is `करोड़`.
pub(super) fn whole(number: u64) -> String {
    if number < 100 {
        return WORDS[number as usize].into();
    }
    let mut words: Vec<String> = Vec::new();
    let mut scale = 1000 * 100u64.pow(6);
    for (place, name) in LARGE.iter().enumerate().rev() {
        // The largest name counts all that is above it.
        let count = if place + 1 == LARGE.len() { number / scale } else { number / scale % 100 };
        if count > 0 {
            words.push(format!("{} {name}", whole(count)));
        }
        scale /= 100;
    }
    let (hundreds, rest) = (number / 100 % 10, number % 100);
    if hundreds > 0 {
        words.push(format!("{} सौ", WORDS[hundreds as usize]));
    }
    if rest > 0 {
        words.push(WORDS[rest as usize].into());
    }
    words.join(" ")
}
