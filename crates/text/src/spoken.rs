//! Texts as a synthesiser reads them: in which language, and where they end.

use crate::tokenizer::Tokenizer;

impl Tokenizer {
    /// `tokens` of a text as they are said: after the language, where any is known, and before the end.
    ///
    /// A language that is not known, or not given, is an unknown one.
    pub fn spoken(&self, tokens: Vec<u32>, language: Option<&str>) -> Vec<u32> {
        let known = |name| self.language(name).unwrap_or(Self::UNKNOWN);
        let first = (!self.languages().is_empty()).then(|| language.map_or(Self::UNKNOWN, known));
        first.into_iter().chain(tokens).chain([Self::END]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_its_language_only_where_there_is_a_choice() {
        let plain = Tokenizer::characters(["ab"]);
        assert_eq!(plain.spoken(vec![4, 5], Some("en")), [4, 5, 3]);
        let several = plain.with_languages(["mr".to_string(), "en".to_string()]);
        assert_eq!(several.spoken(vec![4, 5], Some("mr")), [several.language("mr").unwrap(), 4, 5, 3]);
        for language in [None, Some("xx")] {
            assert_eq!(several.spoken(vec![4], language), [Tokenizer::UNKNOWN, 4, 3]);
        }
    }
}
