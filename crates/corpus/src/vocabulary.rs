//! Word lists for espeak-ng: about sixty simple words in each supported language.
//!
//! The Konkani voice of espeak-ng 1.51 spells out most vowel signs by their names, so its words sound long. The mapping
//! from characters to sound is consistent nevertheless, and a model learns it; words of the other languages are
//! pronounced correctly.

use crate::lexicon::Lexicon;

/// Returns the words that a corpus in `language` consists of, or those of its base language, such as `en` for `en-us`;
/// `None` without a word list.
pub(super) fn words(language: &str) -> Option<Vec<&'static str>> {
    let family = language.split(['-', '_']).next().unwrap_or(language);
    if family == "en" {
        return Some(Lexicon::english().words().iter().map(|word| word.spelling).collect());
    }
    let (_, words) = LISTS.iter().find(|(name, _)| *name == family)?;
    Some(words.split_whitespace().collect())
}

/// Returns the languages that have a word list.
pub(super) fn languages() -> Vec<String> {
    std::iter::once("en").chain(LISTS.iter().map(|(name, _)| *name)).map(String::from).collect()
}

const LISTS: &[(&str, &str)] = &[("kok", KONKANI), ("hi", HINDI), ("mr", MARATHI), ("fa", PERSIAN)];

const KONKANI: &str = "
    एक दोन तीन चार सात आठ णव धा वीस शेकडो
    सोमार बुधवार शुक्रार शेनवार आयतार
    पिवळो निळो काळो धवो पाचवो
    सुणे माजर गाय बैल घोडो वाघ हती सुकणे
    आवय बापूय भाव भयण चलो चली आजी आजो
    घर दार उदक जेवण शीत भाकरी पुस्तक झाड फूल पान फळ मीठ साकर दूद
    दर्या वाट शाळा देवूळ बाजार दीस रात सकाळ पावस वारो उजो तारो
    खा पी बस उठ";

const HINDI: &str = "
    एक दो तीन चार सात आठ नौ दस सौ हजार
    सोमवार बुधवार गुरुवार शुक्रवार शनिवार रविवार
    लाल हरा नीला पीला काला सफेद
    गाय घोड़ा कुत्ता बिल्ली शेर हाथी मछली बकरी
    माता पिता भाई बहन लड़का लड़की
    घर दरवाजा पानी रोटी चावल दूध किताब पेड़ फूल फल नमक
    नदी पहाड़ रास्ता शहर बाजार दिन रात सुबह शाम बारिश हवा आग सूरज तारा
    खाना पीना बैठना";

const MARATHI: &str = "
    एक दोन तीन चार पाच सहा सात आठ नऊ दहा
    सोमवार मंगळवार बुधवार गुरुवार शुक्रवार शनिवार रविवार
    लाल हिरवा निळा पिवळा काळा
    गाय घोडा कुत्रा मांजर वाघ हत्ती मासा बैल
    आई बाबा भाऊ बहीण मुलगा मुलगी
    घर दार पाणी भाकरी भात दूध पुस्तक झाड फूल फळ मीठ साखर
    नदी डोंगर रस्ता गाव शहर बाजार दिवस रात्र सकाळ पाऊस वारा आग सूर्य
    खाणे पिणे बसणे";

const PERSIAN: &str = "
    یک دو سه چهار پنج شش هفت هشت نه ده
    شنبه جمعه امروز فردا دیروز
    سرخ سبز آبی زرد سیاه سفید
    گاو اسب سگ گربه شیر فیل ماهی مرغ
    مادر پدر برادر خواهر پسر دختر
    خانه در آب نان برنج کتاب درخت گل میوه نمک شکر چای
    دریا کوه راه شهر بازار روز شب صبح باران باد آتش ستاره
    برو بیا بخور";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_list_has_enough_words_and_none_twice() {
        for language in languages() {
            let words = words(&language).unwrap();
            assert!(words.len() >= 60, "{language} has {}", words.len());
            let different: HashSet<_> = words.iter().collect();
            assert_eq!(different.len(), words.len(), "{language}");
        }
        assert_eq!(words("en-us"), words("en"));
        assert_eq!(words("xx"), None);
    }
}
