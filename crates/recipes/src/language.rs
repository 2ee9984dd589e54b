//! Language models, hotwords and lexicons of a search, as a person names them.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll_core::{error_chain, read_text_file, replace_file};
use plimsoll_language::{FusionOptions, Hotwords, Lexicon, NgramModel, Quantization, SPACE, TrainOptions, Unit, train};
use plimsoll_speech::ModelFolder;
use plimsoll_speech::asr::LanguageSearch;
use plimsoll_speech::asr::decode::{CtcScores, ctc_best_path};
use plimsoll_speech::score::ErrorCounts;
use plimsoll_text::Tokenizer;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{Failure, FailureExt};
use crate::reporter::Progress;

/// Name of the file with the language model of the training texts, in the folder of a run.
pub const CORPUS_MODEL: &str = "texts.lm";
/// Name of the file with the model of the characters of the training texts, in the folder of a run.
pub const CORPUS_SPELLING: &str = "spelling.lm";
/// Number of words of the longest n-grams of the model of the training texts.
const CORPUS_ORDER: usize = 3;
/// Number of characters of the longest n-grams of the model of the spelling.
const SPELLING_ORDER: usize = 6;

/// Name of the file with the search that was tuned at the end of training, in the folder of a run.
pub const TUNED_SEARCH: &str = "search.json";
/// Weights of the language model and of the spelling, and bonuses of a word, that are tried.
const WEIGHTS: [f64; 6] = [0.0, 0.15, 0.3, 0.6, 1.0, 1.5];
const SPELLING_WEIGHTS: [f64; 5] = [0.0, 0.15, 0.3, 0.5, 0.8];
const BONUSES: [f64; 4] = [0.0, 0.75, 1.5, 3.0];
/// Numbers with which the search of the best begins: without the spelling, where all words are known, and with it.
const FIRST: [[f64; 3]; 2] = [[0.6, 0.0, 1.5], [0.15, 0.5, 0.75]];
/// Number of times that each number is tried beside the best of the others.
const ROUNDS: usize = 2;
/// Largest number of held-out utterances that are searched with each of them.
const TUNING_UTTERANCES: usize = 100;
/// Fewest held-out utterances that can tell whether a language helps.
const TUNING_MIN: usize = 5;
/// Beam width of the tuned search.
const TUNED_WIDTH: NonZeroUsize = NonZeroUsize::new(50).expect("50 is not zero");

/// A search with the language of the training texts, whose numbers were tuned on held-out utterances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunedSearch {
    /// Weight of the language model of words; without it where it is 0.
    pub lm_weight: f64,
    /// Weight of the model of characters; without it where it is 0.
    #[serde(default)]
    pub spelling_weight: f64,
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

    /// Tries weights of the models `texts.lm` and `spelling.lm` in `folder` on utterances with their CTC scores and true texts,
    /// and returns the best with their errors on all of them; `None` if there are no such models, or too few utterances. Of
    /// many utterances, only some are searched with every weight. Each weight in turn is tried beside the best of the others.
    ///
    /// # Errors
    /// If the model cannot be read.
    pub(crate) fn tune(
        folder: &Path,
        tokenizer: &Tokenizer,
        scored: &[(CtcScores, &str)],
        progress: &dyn Progress,
    ) -> Result<Option<Self>, Failure> {
        let (model, spelling) = (folder.join(CORPUS_MODEL), folder.join(CORPUS_SPELLING));
        if scored.len() < TUNING_MIN || !model.is_file() || !spelling.is_file() {
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
        let search = |[weight, spelling_weight, word_bonus]: [f64; 3]| {
            let settings = LanguageSettings {
                model: (weight > 0.0).then(|| model.clone()),
                weight,
                spelling: (spelling_weight > 0.0).then(|| spelling.clone()),
                spelling_weight,
                word_bonus,
                hotwords: Vec::new(),
                hotword_weight: 0.0,
                lexicon: None,
                width: TUNED_WIDTH,
            };
            settings.search(tokenizer)
        };
        // Evenly over the lengths, by which validation is sorted.
        let every = scored.len().div_ceil(TUNING_UTTERANCES).max(1);
        let greedy = rates(every, &ctc_best_path);
        // Whether numbers do not help, and then the sum of the errors: what helps little is better than what does not.
        type Cost = (bool, f64);
        let helps = |[cer, wer]: [f64; 2], greedy: [f64; 2]| wer < greedy[1] && cer <= greedy[0];
        let mut tried: Vec<([f64; 3], Cost)> = Vec::new();
        let mut cost = |numbers: [f64; 3]| -> Result<Cost, Failure> {
            if let Some((_, cost)) = tried.iter().find(|(other, _)| *other == numbers) {
                return Ok(*cost);
            }
            let Some(search) = search(numbers)? else { return Ok((true, f64::INFINITY)) };
            let found = rates(every, &|scores| search.best(scores));
            let cost = (!helps(found, greedy), relative(found, greedy));
            tried.push((numbers, cost));
            progress.set(tried.len() as u64);
            Ok(cost)
        };
        let mut best = (FIRST[0], (true, f64::INFINITY));
        for first in FIRST {
            let mut near = (first, cost(first)?);
            for _ in 0..ROUNDS {
                for (place, values) in [&WEIGHTS[..], &SPELLING_WEIGHTS, &BONUSES].into_iter().enumerate() {
                    for &value in values {
                        let mut numbers = near.0;
                        numbers[place] = value;
                        let cost = cost(numbers)?;
                        if cost < near.1 {
                            near = (numbers, cost);
                        }
                    }
                }
            }
            if near.1 < best.1 {
                best = near;
            }
        }
        let [lm_weight, spelling_weight, word_bonus] = best.0;
        let Some(search) = search(best.0)? else { return Ok(None) };
        let (greedy, with_language) = (rates(1, &ctc_best_path), rates(1, &|scores| search.best(scores)));
        let helps = helps(with_language, greedy);
        let (width, utterances) = (TUNED_WIDTH, scored.len());
        Ok(Some(Self { lm_weight, spelling_weight, word_bonus, width, helps, utterances, with_language, greedy }))
    }
}

/// Adds up character and word error rate, each in relation to that of another search.
fn relative(found: [f64; 2], other: [f64; 2]) -> f64 {
    // An error where there was none counts as a whole error in a hundred.
    found.iter().zip(other).map(|(found, other)| found / other.max(0.01)).sum()
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
    /// File of a model of characters that is used beside the language model: unknown words are scored by their letters.
    pub spelling: Option<PathBuf>,
    /// Weight of the model of characters.
    pub spelling_weight: f64,
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
    /// Returns settings without models, hotwords and lexicon.
    pub fn none() -> Self {
        Self {
            model: None,
            weight: 0.0,
            spelling: None,
            spelling_weight: 0.0,
            word_bonus: 0.0,
            hotwords: Vec::new(),
            hotword_weight: 0.0,
            lexicon: None,
            width: NonZeroUsize::MIN,
        }
    }

    /// Returns whether there are models, hotwords or a lexicon.
    pub fn has_words(&self) -> bool {
        self.model.is_some() || self.spelling.is_some() || !self.hotwords.is_empty() || self.lexicon.is_some()
    }

    /// Makes the search over the tokens of `tokenizer`; `None` if there are neither models nor hotwords nor a lexicon.
    ///
    /// # Errors
    /// If a file cannot be read, or a number is impossible.
    pub fn search(&self, tokenizer: &Tokenizer) -> Result<Option<LanguageSearch>, Failure> {
        if !self.has_words() {
            return Ok(None);
        }
        let numbers = [
            ("--lm-weight", self.weight),
            ("--spelling-weight", self.spelling_weight),
            ("--word-bonus", self.word_bonus),
            ("--hotword-weight", self.hotword_weight),
        ];
        if let Some((flag, value)) = numbers.into_iter().find(|(_, value)| !value.is_finite()) {
            return Err(Failure::invalid(format!("`{flag}` is {value}"), "give a finite number"));
        }
        if let Some((flag, value)) = numbers[..2].iter().find(|(_, value)| *value < 0.0) {
            return Err(Failure::invalid(format!("`{flag}` is {value}"), "give 0 or more"));
        }
        let options = FusionOptions::default().with_weights(self.weight, self.word_bonus);
        let options = match self.lexicon {
            // Few texts are allowed: the likeliest tokens can all lead to words that are not.
            Some(_) => options.with_width(self.width.max(LEXICON_WIDTH)).without_pruning(),
            None => options.with_width(self.width),
        };
        let mut search = LanguageSearch::new(tokenizer, options);
        if let Some(path) = &self.model {
            let model = open_model(path)?;
            if model.unit() == Unit::Characters && self.spelling.is_some() {
                let message = format!("{} is a model of characters, and so is that of --spelling", path.display());
                return Err(Failure::invalid(message, "give one of them"));
            }
            search = search.with_model(model);
        }
        if let Some(path) = &self.spelling {
            let spelling = open_model(path)?;
            if spelling.unit() != Unit::Characters {
                let message = format!("{} is a model of words", path.display());
                let help = "`--spelling` takes a model of characters: `lm train --characters --order 6`";
                return Err(Failure::invalid(message, help));
            }
            // Without a weight it would only free unknown words from their penalty.
            if self.spelling_weight > 0.0 {
                search = search.with_spelling(spelling, self.spelling_weight);
            }
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
    let is_of_model = path.parent().is_some_and(|folder| ModelFolder(folder).metadata_file().exists());
    let remedy = [
        (CORPUS_MODEL, "train one: `lm train --data CORPUS --out texts.lm`"),
        (CORPUS_SPELLING, "train one: `lm train --characters --order 6 --data CORPUS --out spelling.lm`"),
    ]
    .into_iter()
    .find(|(name, _)| path.file_name().is_some_and(|own| own == *name));
    if let Some((_, remedy)) = remedy.filter(|_| is_of_model && !path.exists()) {
        let message = format!("there is no {}: this model has no language model of its training texts", path.display());
        return Err(Failure::invalid(message, remedy));
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

/// Trains language models of the words and of the characters of `texts` and writes them into `folder`; without a text nothing
/// is written.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_corpus_model(texts: &[&str], folder: &Path) -> Result<(), Failure> {
    if texts.iter().all(|text| text.trim().is_empty()) {
        return Ok(());
    }
    let (model, _) = train(texts, &TrainOptions::new(CORPUS_ORDER)).failed()?;
    model.save(folder.join(CORPUS_MODEL), Quantization::None).failed()?;
    let (spelling, _) = train(texts, &TrainOptions::new(SPELLING_ORDER).with_unit(Unit::Characters)).failed()?;
    spelling.save(folder.join(CORPUS_SPELLING), Quantization::None).failed()
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::reporter::{Reporter, Silent};

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
        assert_eq!(TunedSearch::tune(folder.path(), &tokenizer, &misheard, &*Silent.progress("", None)).unwrap(), None);
        write_corpus_model(&texts, folder.path()).unwrap();
        let tuned =
            TunedSearch::tune(folder.path(), &tokenizer, &misheard, &*Silent.progress("", None)).unwrap().unwrap();
        assert!(tuned.helps && tuned.with_language[1] < tuned.greedy[1], "{tuned:?}");
        tuned.write(folder.path()).unwrap();
        assert_eq!(TunedSearch::read(folder.path()).unwrap(), Some(tuned));
        // What is heard without an error gets no better.
        let heard: Vec<_> = texts.iter().chain(&texts).map(|text| (scores(&tokenizer, text, text), *text)).collect();
        let tuned = TunedSearch::tune(folder.path(), &tokenizer, &heard, &*Silent.progress("", None)).unwrap().unwrap();
        assert!(!tuned.helps, "{tuned:?}");
        std::fs::write(folder.path().join(TUNED_SEARCH), "{").unwrap();
        assert!(TunedSearch::read(folder.path()).is_err());
    }
}
