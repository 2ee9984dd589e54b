//! Language models, hotwords and lexicons of a search, as a person names them.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll_core::{error_chain, read_text_file, replace_file};
use plimsoll_language::{FusionOptions, Hotwords, Lexicon, NgramModel, Quantization, SPACE, TrainOptions, Unit, train};
use plimsoll_speech::asr::LanguageSearch;
use plimsoll_speech::asr::decode::{CtcScores, ctc_best_path};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_text::Tokenizer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Failure, FailureExt};

/// Name of the file with the language model of the training texts, in the folder of a run.
pub const CORPUS_MODEL: &str = "texts.lm";
/// Number of words of the longest n-grams of the model of the training texts.
const CORPUS_ORDER: usize = 3;

/// Name of the file with the search that was tuned at the end of training, in the folder of a run.
pub const TUNED_SEARCH: &str = "search.json";
/// Weights of the language model, and bonuses of a word, that are tried.
const WEIGHTS: [f64; 5] = [0.15, 0.3, 0.6, 1.0, 1.5];
const BONUSES: [f64; 3] = [0.0, 1.5, 3.0];
/// Largest number of held-out utterances that are searched with each of them.
const TUNING_UTTERANCES: usize = 100;
/// Fewest held-out utterances that can tell whether a language helps.
const TUNING_MIN: usize = 5;
/// Beam width of the tuned search.
const TUNED_WIDTH: NonZeroUsize = NonZeroUsize::new(20).expect("20 is not zero");

/// A search with the language of the training texts, whose numbers were tuned on held-out utterances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedSearch {
    /// Weight of the language model.
    pub lm_weight: f64,
    /// Bonus for each word.
    pub word_bonus: f64,
    /// Number of texts that the search keeps after each frame.
    pub width: NonZeroUsize,
    /// Whether it is better than the best token of each frame: fewer words are wrong, and not more characters.
    pub helps: bool,
    /// Number of held-out utterances.
    pub utterances: usize,
    /// Character and word error rate with this search.
    pub with_language: [f64; 2],
    /// Character and word error rate of the best token of each frame.
    pub greedy: [f64; 2],
}

impl TunedSearch {
    /// Reads the search that was tuned for the model in `folder`; `None` if none was.
    ///
    /// # Errors
    /// If the file is there and is no tuned search.
    pub fn read(folder: &Path) -> Result<Option<Self>, Failure> {
        let path = folder.join(TUNED_SEARCH);
        if !path.is_file() {
            return Ok(None);
        }
        let wrong = |reason: String| {
            let message = format!("{} cannot be read: {reason}", path.display());
            Failure::invalid(message, "`--lm none` searches without it")
        };
        let text = read_text_file(&path).map_err(|error| wrong(error.to_string()))?;
        serde_json::from_str(&text).map(Some).map_err(|error| wrong(error.to_string()))
    }

    /// Writes the search into `folder`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("numbers are plain data");
        replace_file(&folder.join(TUNED_SEARCH), |file| writeln!(file, "{text}")).failed()
    }

    /// Tries weights of the model `texts.lm` in `folder` on utterances with their CTC scores and true texts, and returns the
    /// best with its errors on all of them; `None` if there is no such model, or too few utterances. Of many utterances,
    /// only some are searched with every weight.
    ///
    /// # Errors
    /// If the model cannot be read.
    pub(crate) fn tune(
        folder: &Path,
        tokenizer: &Tokenizer,
        scored: &[(CtcScores, &str)],
    ) -> Result<Option<Self>, Failure> {
        let model = folder.join(CORPUS_MODEL);
        if scored.len() < TUNING_MIN || !model.is_file() {
            return Ok(None);
        }
        let rates = |every: usize, find: &(dyn Fn(&CtcScores) -> Vec<u32> + Sync)| {
            let count = |(scores, truth): &(CtcScores, &str)| {
                let text = tokenizer.decode(&find(scores));
                [ErrorCounts::characters(truth, &text), ErrorCounts::words(truth, &text)]
            };
            let add = |[a, b]: [ErrorCounts; 2], [c, d]: [ErrorCounts; 2]| [a + c, b + d];
            scored.par_iter().step_by(every).map(count).reduce(Default::default, add).map(|counts| counts.rate())
        };
        let search = |weight: f64, word_bonus: f64| {
            let settings = LanguageSettings {
                model: Some(model.clone()),
                weight,
                word_bonus,
                hotwords: Vec::new(),
                hotword_weight: 0.0,
                lexicon: None,
                width: TUNED_WIDTH,
            };
            settings.search(tokenizer).map(|search| search.expect("there is a model"))
        };
        let helps = |[cer, wer]: [f64; 2], greedy: [f64; 2]| wer < greedy[1] && cer <= greedy[0];
        // Evenly over the lengths, by which validation is sorted.
        let every = scored.len().div_ceil(TUNING_UTTERANCES).max(1);
        let greedy = rates(every, &ctc_best_path);
        let mut best: Option<((bool, f64, f64), [f64; 2])> = None;
        for (weight, word_bonus) in WEIGHTS.iter().flat_map(|weight| BONUSES.map(|bonus| (*weight, bonus))) {
            let search = search(weight, word_bonus)?;
            let [cer, wer] = rates(every, &|scores| search.best(scores));
            let order = (!helps([cer, wer], greedy), wer, cer);
            if best.is_none_or(|(least, _)| order < least) {
                best = Some((order, [weight, word_bonus]));
            }
        }
        let (_, [lm_weight, word_bonus]) = best.expect("there are weights to try");
        let search = search(lm_weight, word_bonus)?;
        let (greedy, with_language) = (rates(1, &ctc_best_path), rates(1, &|scores| search.best(scores)));
        let (width, utterances, helps) = (TUNED_WIDTH, scored.len(), helps(with_language, greedy));
        Ok(Some(Self { lm_weight, word_bonus, width, helps, utterances, with_language, greedy }))
    }
}

/// Smallest beam width with a lexicon.
const LEXICON_WIDTH: NonZeroUsize = NonZeroUsize::new(100).expect("100 is not zero");

/// Language model, hotwords and lexicon of a search; each may be left out.
#[derive(Clone, Debug, PartialEq)]
pub struct LanguageSettings {
    /// File of the language model: of Plimsoll, of KenLM, or ARPA.
    pub model: Option<PathBuf>,
    /// Weight of the language model.
    pub weight: f64,
    /// Bonus for each word.
    pub word_bonus: f64,
    /// Words and phrases that are easier to find.
    pub hotwords: Vec<String>,
    /// Weight of each hotword.
    pub hotword_weight: f64,
    /// Text file with the only words that may be found.
    pub lexicon: Option<PathBuf>,
    /// Number of texts that the search keeps after each frame.
    pub width: NonZeroUsize,
}

impl LanguageSettings {
    /// Makes the search over the tokens of `tokenizer`; `None` if there is neither a model nor hotwords nor a lexicon.
    ///
    /// # Errors
    /// If a file cannot be read, or a number is impossible.
    pub fn search(&self, tokenizer: &Tokenizer) -> Result<Option<LanguageSearch>, Failure> {
        if self.model.is_none() && self.hotwords.is_empty() && self.lexicon.is_none() {
            return Ok(None);
        }
        let numbers = [
            ("--lm-weight", self.weight),
            ("--word-bonus", self.word_bonus),
            ("--hotword-weight", self.hotword_weight),
        ];
        if let Some((flag, value)) = numbers.into_iter().find(|(_, value)| !value.is_finite()) {
            return Err(Failure::invalid(format!("`{flag}` is {value}"), "give a finite number"));
        }
        if self.weight < 0.0 {
            return Err(Failure::invalid(format!("`--lm-weight` is {}", self.weight), "give 0 or more"));
        }
        let options = FusionOptions::default().with_weights(self.weight, self.word_bonus);
        let options = match self.lexicon {
            // Few texts are allowed: the likeliest tokens can all lead to words that are not.
            Some(_) => options.with_width(self.width.max(LEXICON_WIDTH)).without_pruning(),
            None => options.with_width(self.width),
        };
        let mut search = LanguageSearch::new(tokenizer, options);
        if let Some(path) = &self.model {
            search = search.with_model(open_model(path)?);
        }
        if !self.hotwords.is_empty() {
            search = search.with_hotwords(Hotwords::new(&self.hotwords, self.hotword_weight));
        }
        if let Some(path) = &self.lexicon {
            let text = read_text_file(path).map_err(|error| {
                Failure::invalid(
                    format!("cannot read {}: {error}", path.display()),
                    "`--lexicon` takes a text file of words",
                )
            })?;
            let lexicon = Lexicon::new(text.trim_start_matches('\u{feff}').lines());
            if lexicon.is_empty() {
                let message = format!("{} has no word", path.display());
                return Err(Failure::invalid(message, "`--lexicon` takes a text file of words"));
            }
            search = search.with_lexicon(lexicon);
        }
        Ok(Some(search))
    }
}

/// Opens the language model in the file at `path`.
///
/// # Errors
/// If the file cannot be read, or is no language model.
pub fn open_model(path: &Path) -> Result<NgramModel, Failure> {
    if path.file_name().is_some_and(|name| name == CORPUS_MODEL) && !path.exists() {
        let message = format!("there is no {}: this model has no language model of its training texts", path.display());
        return Err(Failure::invalid(message, "train one: `lm train --data CORPUS --out texts.lm`"));
    }
    let model = NgramModel::open(path).map_err(|error| {
        let message = format!("{} cannot be used as a language model: {}", path.display(), error_chain(&error));
        Failure::invalid(message, "a language model is a file of `lm train`, of KenLM, or in ARPA form")
    })?;
    Ok(if has_characters(&model) { model.with_unit(Unit::Characters) } else { model })
}

/// Returns whether the words of `model` are characters: an ARPA file does not say what its units are.
fn has_characters(model: &NgramModel) -> bool {
    let is_special = |word: &str| matches!(word, "<unk>" | "<s>" | "</s>");
    let mut words = model.words().filter(|word| !is_special(word)).peekable();
    words.peek().is_some() && model.id(SPACE).is_some() && words.all(|word| word.chars().count() == 1)
}

/// Trains a language model of `texts` and writes it into `folder`; without a text nothing is written.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_corpus_model(texts: &[&str], folder: &Path) -> Result<(), Failure> {
    if texts.iter().all(|text| text.trim().is_empty()) {
        return Ok(());
    }
    let (model, _) = train(texts, &TrainOptions::new(CORPUS_ORDER)).failed()?;
    model.save(folder.join(CORPUS_MODEL), Quantization::None).failed()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Returns scores in which each token of `heard` is the likeliest of its frame, and its second choice nearly as likely.
    fn scores(tokenizer: &Tokenizer, heard: &str, meant: &str) -> CtcScores {
        let vocabulary = tokenizer.size();
        let (heard, meant) = (tokenizer.encode(heard).unwrap(), tokenizer.encode(meant).unwrap());
        let mut values = Vec::new();
        for (&first, &second) in heard.iter().zip(&meant) {
            for token in [first, 0] {
                let mut frame = vec![-9.0; vocabulary];
                if token != 0 {
                    frame[second as usize] = -0.9;
                }
                frame[token as usize] = if token == 0 { -0.01 } else { -0.6 };
                values.extend(frame);
            }
        }
        CtcScores::new(values, vocabulary)
    }

    #[test]
    fn a_language_is_used_where_it_makes_fewer_errors() {
        let folder = TempDir::new().unwrap();
        let texts = ["the cat sat on the mat", "the dog sat on the cat", "a cat and a dog sat"];
        let tokenizer = Tokenizer::characters(texts);
        let misheard: Vec<_> = ["the cap sat", "the dot sat", "a cat and a dop", "on the cap", "the mat saw"]
            .iter()
            .zip(["the cat sat", "the dog sat", "a cat and a dog", "on the cat", "the mat sat"])
            .map(|(heard, meant)| (scores(&tokenizer, &heard.replace(['p', 'w'], "n"), meant), meant))
            .collect();
        // Without a model of the texts there is nothing to tune.
        assert_eq!(TunedSearch::tune(folder.path(), &tokenizer, &misheard).unwrap(), None);
        write_corpus_model(&texts, folder.path()).unwrap();
        let tuned = TunedSearch::tune(folder.path(), &tokenizer, &misheard).unwrap().unwrap();
        assert!(tuned.helps && tuned.with_language[1] < tuned.greedy[1], "{tuned:?}");
        tuned.write(folder.path()).unwrap();
        assert_eq!(TunedSearch::read(folder.path()).unwrap(), Some(tuned));
        // What is heard without an error gets no better.
        let heard: Vec<_> = texts.iter().chain(&texts).map(|text| (scores(&tokenizer, text, text), *text)).collect();
        let tuned = TunedSearch::tune(folder.path(), &tokenizer, &heard).unwrap().unwrap();
        assert!(!tuned.helps, "{tuned:?}");
        std::fs::write(folder.path().join(TUNED_SEARCH), "{").unwrap();
        assert!(TunedSearch::read(folder.path()).is_err());
    }
}
