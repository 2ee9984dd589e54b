//! Flags that choose how a recognizer searches the best text, shared by `transcribe` and `eval`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll_speech::asr::Search;

use crate::number::number_in;
use plimsoll_recipes::Failure;
use plimsoll_recipes::language::{CORPUS_MODEL, LanguageSettings};

/// Largest beam width. The time of a search grows with the width, and texts do not get better long before this one.
const WIDTH_MAX: usize = 1000;

/// Flags that choose the search.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchArgs {
    /// Search for the best text. greedy is the fastest; attention, joint and rescore need a model with an attention decoder.
    #[arg(long, value_name = "NAME", value_parser = Search::NAMES, default_value = "greedy")]
    pub(crate) search: String,
    /// Beam width: candidate texts that are kept at each step, at most 1000. greedy ignores it.
    #[arg(long, value_name = "N", default_value = "10", value_parser = |text: &str| number_in(text, 1..=WIDTH_MAX))]
    pub(crate) width: NonZeroUsize,
    /// Weight of CTC in the score of joint and rescore, from 0 to 1; the decoder has the rest.
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, allow_negative_numbers = true)]
    pub(crate) ctc_weight: f64,
    /// Score added per token in attention and joint. Above 0, longer texts win more often.
    #[arg(long, value_name = "SCORE", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(crate) length_bonus: f64,
    /// Language model that CTC is searched with: a file of `lm train`, of KenLM or in ARPA form, or `corpus` for the model of
    /// the run's training texts.
    #[arg(long, value_name = "FILE|corpus")]
    pub(crate) lm: Option<PathBuf>,
    /// Weight of the language model.
    #[arg(long, value_name = "WEIGHT", default_value_t = 0.5, allow_negative_numbers = true)]
    pub(crate) lm_weight: f64,
    /// Score added per word with a language model, which by itself prefers few words.
    #[arg(long, value_name = "SCORE", default_value_t = 1.5, allow_negative_numbers = true)]
    pub(crate) word_bonus: f64,
    /// Words and phrases that are easier to find, separated by commas.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub(crate) hotwords: Vec<String>,
    /// Weight of each hotword.
    #[arg(long, value_name = "WEIGHT", default_value_t = 10.0, allow_negative_numbers = true)]
    pub(crate) hotword_weight: f64,
    /// Text file with the only words that may be found.
    #[arg(long, value_name = "FILE")]
    pub(crate) lexicon: Option<PathBuf>,
}

impl SearchArgs {
    /// Returns the name of the search, for reports.
    pub(crate) fn name(&self) -> String {
        let parts = [
            (self.lm.is_some(), "language model"),
            (self.hotwords.iter().any(|word| !word.trim().is_empty()), "hotwords"),
            (self.lexicon.is_some(), "lexicon"),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| name).collect();
        match parts.is_empty() {
            true => self.search.clone(),
            false => format!("prefix-beam ({})", parts.join(", ")),
        }
    }

    /// Returns the language model, hotwords and lexicon for the model in the folder `run`.
    pub(crate) fn language(&self, run: &Path) -> LanguageSettings {
        let is_corpus = |path: &PathBuf| path.as_os_str() == "corpus";
        let model = |path: &PathBuf| if is_corpus(path) { run.join(CORPUS_MODEL) } else { path.clone() };
        LanguageSettings {
            model: self.lm.as_ref().map(model),
            weight: self.lm_weight,
            word_bonus: self.word_bonus,
            hotwords: self
                .hotwords
                .iter()
                .map(|word| word.trim().to_string())
                .filter(|word| !word.is_empty())
                .collect(),
            hotword_weight: self.hotword_weight,
            lexicon: self.lexicon.clone(),
            width: self.width,
        }
    }

    /// Returns the search that the flags describe.
    pub(crate) fn resolve(&self) -> Result<Search, Failure> {
        if !(0.0..=1.0).contains(&self.ctc_weight) {
            let message = format!("`--ctc-weight` is {}, expected a share from 0 to 1", self.ctc_weight);
            return Err(Failure::invalid(message, "0 uses the decoder alone, 1 CTC alone"));
        }
        if !self.length_bonus.is_finite() {
            let message = format!("`--length-bonus` is {}, expected a finite number", self.length_bonus);
            return Err(Failure::invalid(message, "0 prefers no length"));
        }
        let search = Search::from_name(&self.search, self.width, self.ctc_weight, self.length_bonus);
        Ok(search.expect("clap accepts only these names"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        search: SearchArgs,
    }

    fn check(flags: &[&str], expected: Option<Search>) {
        let program = Program::try_parse_from(["plimsoll"].iter().chain(flags)).unwrap();
        assert_eq!(program.search.resolve().ok(), expected, "{flags:?}");
    }

    #[test]
    fn flags_select_search() {
        let width = |n| NonZeroUsize::new(n).unwrap();
        check(&[], Some(Search::Greedy));
        check(&["--search", "prefix-beam", "--width", "3"], Some(Search::PrefixBeam { width: width(3) }));
        let joint = Search::Joint { width: width(10), ctc_weight: 0.3, length_bonus: -0.5 };
        check(&["--search", "joint", "--length-bonus", "-0.5"], Some(joint));
        for flags in
            [["--ctc-weight", "1.5"], ["--ctc-weight", "-1"], ["--ctc-weight", "NaN"], ["--length-bonus", "inf"]]
        {
            check(&flags, None);
        }
    }

    #[test]
    fn every_search_has_a_name() {
        for name in Search::NAMES {
            let program = Program::try_parse_from(["plimsoll", "--search", name]).unwrap();
            assert!(program.search.resolve().is_ok(), "{name}");
        }
        assert!(Program::try_parse_from(["plimsoll", "--search", "luck"]).is_err());
        for width in ["0", "1001", "1000000", "-3"] {
            assert!(Program::try_parse_from(["plimsoll", &format!("--width={width}")]).is_err(), "{width}");
        }
    }
}
