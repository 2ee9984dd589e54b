//! Flags that choose how a recognizer searches the best text, shared by `transcribe` and `eval`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll_recipes::Failure;
use plimsoll_recipes::language::{CORPUS_MODEL, CORPUS_SPELLING, LanguageSettings, TunedSearch};
use plimsoll_recipes::listener::Listening;
use plimsoll_speech::asr::Search;

use crate::number::number_in;

/// Largest beam width. The time of a search grows with the width, and texts do not get better long before this one.
const WIDTH_MAX: usize = 1000;

/// Name of the search that looks at each frame alone.
const GREEDY: &str = "greedy";
/// Name of the search that a language model, hotwords and a lexicon take part in.
const PREFIX_BEAM: &str = "prefix-beam";
/// Name of the search with the decoder that they take part in, too.
const JOINT: &str = "joint";
/// Defaults of the flags.
const WIDTH: NonZeroUsize = NonZeroUsize::new(10).expect("10 is not 0");
const CTC_WEIGHT: f64 = 0.3;
const LM_WEIGHT: f64 = 0.5;
const SPELLING_WEIGHT: f64 = 0.3;
const WORD_BONUS: f64 = 1.5;
const HOTWORD_WEIGHT: f64 = 10.0;

/// Refuses the flags `idle`, which have no effect `place`, with `help` if it is better than to leave them out.
fn refuse(idle: Vec<&str>, place: &str, help: Option<&str>) -> Result<(), Failure> {
    let (have, them) = match idle.len() {
        0 => return Ok(()),
        1 => ("has", "it"),
        _ => ("have", "them"),
    };
    let message = format!("{} {have} no effect {place}", idle.join(", "));
    Err(Failure::invalid(message, help.map_or_else(|| format!("leave {them} out"), str::to_string)))
}

/// Flags that choose the search.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Search")]
pub(crate) struct SearchArgs {
    /// Search for the best text. greedy is the fastest; attention, joint and rescore need a model with an attention decoder.
    /// Default: greedy, or prefix-beam with a language model.
    #[arg(long, value_name = "NAME", value_parser = Search::NAMES)]
    pub(crate) search: Option<String>,
    /// Beam width: candidate texts that are kept at each step, at most 1000. greedy refuses it. Default: 10.
    #[arg(long, value_name = "N", value_parser = |text: &str| number_in(text, 1..=WIDTH_MAX))]
    pub(crate) width: Option<NonZeroUsize>,
    /// Weight of CTC in the score of joint and rescore, from 0 to 1; the decoder has the rest. Default: 0.3.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) ctc_weight: Option<f64>,
    /// Score added per token in attention and joint. Above 0, longer texts win more often. Default: 0.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub(crate) length_bonus: Option<f64>,
    /// Language model that CTC is searched with: a file of `lm train`, of KenLM or in ARPA form, `corpus` for the model of the
    /// run's training texts, or `none`. Default: `corpus` with the weights that were tuned at the end of training, if it made
    /// fewer errors on held-out utterances there and no --search is given.
    #[arg(long, value_name = "FILE|corpus|none")]
    pub(crate) lm: Option<PathBuf>,
    /// Model of characters beside the language model, so that words which it does not know are scored by their letters: a file of
    /// `lm train --characters`, `corpus` for the model of the run's training texts, or `none`. Default: as for --lm.
    #[arg(long, value_name = "FILE|corpus|none")]
    pub(crate) spelling: Option<PathBuf>,
    /// Weight of the model of characters. Default: 0.3.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true)]
    pub(crate) spelling_weight: Option<f64>,
    /// Weight of the language model. Default: 0.5.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true)]
    pub(crate) lm_weight: Option<f64>,
    /// Score added per word with a language model, which by itself prefers few words. Default: 1.5.
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub(crate) word_bonus: Option<f64>,
    /// Words and phrases that are easier to find, separated by commas.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    pub(crate) hotwords: Vec<String>,
    /// Weight of each hotword. Default: 10.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true)]
    pub(crate) hotword_weight: Option<f64>,
    /// Language of the recordings, as a code such as `de`: for a Whisper model that knows several. Default: that of its training.
    #[arg(long, value_name = "CODE")]
    pub(crate) language: Option<String>,
    /// Text file with the only words that may be found.
    #[arg(long, value_name = "FILE")]
    pub(crate) lexicon: Option<PathBuf>,
}

impl SearchArgs {
    /// Returns the flags as they hold for the model in the folder `run`: with the search that was tuned for it, unless they
    /// say otherwise.
    pub(crate) fn for_run(&self, run: &Path) -> Result<Self, Failure> {
        let given = |path: &Option<PathBuf>| path.clone().filter(|path| path.as_os_str() != "none");
        let plain = Self { lm: given(&self.lm), spelling: given(&self.spelling), ..self.clone() };
        if self.lm.is_some() && plain.lm.is_none() {
            return Ok(plain);
        }
        let is = |name: &str| self.lm.as_ref().is_some_and(|path| path.as_os_str() == name);
        let is_open = self.search.is_none() && self.lexicon.is_none() && (self.lm.is_none() || is("corpus"));
        let tuned = if is_open { TunedSearch::read(run)? } else { None };
        let Some(tuned) = tuned.filter(|tuned| is("corpus") || tuned.helps && run.join(CORPUS_MODEL).is_file()) else {
            return Ok(plain);
        };
        let corpus = |weight: f64| (weight > 0.0).then(|| PathBuf::from("corpus"));
        let has_own_weight = self.lm_weight.is_some() || is("corpus");
        let lm = if has_own_weight { Some("corpus".into()) } else { corpus(tuned.lm_weight) };
        let spelling = match self.spelling {
            Some(_) => plain.spelling.clone(),
            None => corpus(self.spelling_weight.unwrap_or(tuned.spelling_weight))
                .filter(|_| run.join(CORPUS_SPELLING).is_file()),
        };
        Ok(Self {
            lm_weight: self.lm_weight.or(Some(tuned.lm_weight).filter(|weight| lm.is_some() && *weight > 0.0)),
            lm,
            spelling_weight: self.spelling_weight.or(spelling.is_some().then_some(tuned.spelling_weight)),
            spelling,
            word_bonus: self.word_bonus.or(Some(tuned.word_bonus)),
            width: self.width.or(Some(tuned.width)),
            ..plain
        })
    }

    /// Returns the name of the search, for reports.
    pub(crate) fn name(&self) -> String {
        let parts = [
            (self.lm.is_some() || self.spelling.is_some(), "language model"),
            (self.hotwords.iter().any(|word| !word.trim().is_empty()), "hotwords"),
            (self.lexicon.is_some(), "lexicon"),
        ];
        let parts: Vec<&str> = parts.into_iter().filter(|(is_given, _)| *is_given).map(|(_, name)| name).collect();
        match parts.is_empty() {
            true => self.search_name().into(),
            false if self.search_name() == JOINT => format!("{JOINT} ({})", parts.join(", ")),
            false => format!("{PREFIX_BEAM} ({})", parts.join(", ")),
        }
    }

    /// Returns how the model in the folder `run` listens.
    pub(crate) fn listening(&self, run: &Path) -> Result<Listening, Failure> {
        Ok(Listening { search: self.resolve()?, words: self.words(run), language: self.language.clone() })
    }

    /// Returns the language model, hotwords and lexicon for the model in the folder `run`.
    pub(crate) fn words(&self, run: &Path) -> LanguageSettings {
        let model = |path: &Option<PathBuf>, of_corpus: &str| {
            path.as_ref().map(|path| if path.as_os_str() == "corpus" { run.join(of_corpus) } else { path.clone() })
        };
        LanguageSettings {
            model: model(&self.lm, CORPUS_MODEL),
            weight: self.lm_weight.unwrap_or(LM_WEIGHT),
            spelling: model(&self.spelling, CORPUS_SPELLING),
            spelling_weight: self.spelling_weight.unwrap_or(SPELLING_WEIGHT),
            word_bonus: self.word_bonus.unwrap_or(WORD_BONUS),
            hotwords: self
                .hotwords
                .iter()
                .map(|word| word.trim().to_string())
                .filter(|word| !word.is_empty())
                .collect(),
            hotword_weight: self.hotword_weight.unwrap_or(HOTWORD_WEIGHT),
            lexicon: self.lexicon.clone(),
            width: self.width.unwrap_or(WIDTH),
        }
    }

    fn search_name(&self) -> &str {
        self.search.as_deref().unwrap_or(GREEDY)
    }

    /// Returns whether the flags give words to the search, which is then a joint search or a prefix beam over CTC.
    fn has_words(&self) -> bool {
        self.lm.is_some()
            || self.spelling.is_some()
            || self.lexicon.is_some()
            || self.hotwords.iter().any(|word| !word.trim().is_empty())
    }

    /// Lists the flags that are given, with whether they have an effect.
    fn given(&self) -> Vec<(&'static str, bool)> {
        let (name, has_words) = (self.search_name(), self.has_words());
        let all = [
            ("--search", self.search.is_some(), !has_words || [PREFIX_BEAM, JOINT].contains(&name)),
            ("--width", self.width.is_some(), has_words || name != GREEDY),
            ("--ctc-weight", self.ctc_weight.is_some(), name == JOINT || !has_words && name == "rescore"),
            ("--length-bonus", self.length_bonus.is_some(), name == JOINT || !has_words && name == "attention"),
            ("--lm", self.lm.is_some(), true),
            ("--lm-weight", self.lm_weight.is_some(), self.lm.is_some()),
            ("--spelling", self.spelling.is_some(), true),
            // A weight of zero turns the models of a run off.
            (
                "--spelling-weight",
                self.spelling_weight.is_some(),
                self.spelling.is_some() || self.spelling_weight == Some(0.0),
            ),
            ("--word-bonus", self.word_bonus.is_some(), self.lm.is_some() || self.spelling.is_some()),
            ("--hotwords", !self.hotwords.is_empty(), true),
            ("--hotword-weight", self.hotword_weight.is_some(), !self.hotwords.is_empty()),
            ("--language", self.language.is_some(), true),
            ("--lexicon", self.lexicon.is_some(), true),
        ];
        all.into_iter().filter(|(_, is_given, _)| *is_given).map(|(flag, _, counts)| (flag, counts)).collect()
    }

    /// Refuses flags with impossible numbers, and flags that change nothing in the search `held`, which is that of
    /// [`for_run`](Self::for_run).
    pub(crate) fn refuse_idle_flags(&self, held: &Self) -> Result<(), Failure> {
        held.resolve()?;
        // What was tuned for the run can be idle without a word of the person.
        let typed: Vec<&str> = self.given().into_iter().map(|(flag, _)| flag).collect();
        let idle = held.given().into_iter().filter(|(flag, counts)| !counts && typed.contains(flag));
        let idle: Vec<&str> = idle.map(|(flag, _)| flag).collect();
        let is_search = idle == ["--search"];
        let help =
            "a language, hotwords or a lexicon are searched with `prefix-beam` or `joint`; `--lm none` is without";
        refuse(idle, &format!("in this search: {}", held.name()), is_search.then_some(help))
    }

    /// Refuses all flags of the search for a model in the folder `run` that is no recognizer.
    pub(crate) fn refuse_all_flags(&self, run: &Path) -> Result<(), Failure> {
        let given = self.given().into_iter().map(|(flag, _)| flag).collect();
        refuse(given, &format!("on {}, which is no recognizer", run.display()), None)
    }

    /// Returns the search that the flags describe.
    pub(crate) fn resolve(&self) -> Result<Search, Failure> {
        let ctc_weight = self.ctc_weight.unwrap_or(CTC_WEIGHT);
        if !(0.0..=1.0).contains(&ctc_weight) {
            let message = format!("`--ctc-weight` is {ctc_weight}, expected a share from 0 to 1");
            return Err(Failure::invalid(message, "0 uses the decoder alone, 1 CTC alone"));
        }
        let length_bonus = self.length_bonus.unwrap_or(0.0);
        if !length_bonus.is_finite() {
            let message = format!("`--length-bonus` is {length_bonus}, expected a finite number");
            return Err(Failure::invalid(message, "0 prefers no length"));
        }
        let search = Search::from_name(self.search_name(), self.width.unwrap_or(WIDTH), ctc_weight, length_bonus);
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
    fn flags_without_effect_are_found() {
        let idle = |flags: &[&str]| {
            let search = Program::try_parse_from(["plimsoll"].iter().chain(flags)).unwrap().search;
            let idle = search.given().into_iter().filter(|(_, counts)| !counts).map(|(flag, _)| flag);
            idle.collect::<Vec<_>>()
        };
        assert_eq!(idle(&[]), [""; 0]);
        assert_eq!(idle(&["--width", "5"]), ["--width"]);
        assert_eq!(idle(&["--width", "5", "--lm", "a.lm", "--lm-weight", "1"]), [""; 0]);
        assert_eq!(idle(&["--search", "joint", "--hotwords", "a", "--ctc-weight", "0.5"]), [""; 0]);
        assert_eq!(idle(&["--search", "rescore", "--lm", "a", "--ctc-weight", "0.5"]), ["--search", "--ctc-weight"]);
        assert_eq!(idle(&["--lm-weight", "1", "--hotword-weight", "2"]), ["--lm-weight", "--hotword-weight"]);
        assert_eq!(idle(&["--search", "attention", "--ctc-weight", "0.5", "--length-bonus", "1"]), ["--ctc-weight"]);
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
