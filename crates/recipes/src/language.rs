//! Language models, hotwords and lexicons of a search, as a person names them.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use plimsoll_core::{error_chain, read_text_file};
use plimsoll_language::{FusionOptions, Hotwords, Lexicon, NgramModel, Quantization, SPACE, TrainOptions, Unit, train};
use plimsoll_speech::asr::LanguageSearch;
use plimsoll_text::Tokenizer;

use crate::error::{Failure, FailureExt};

/// Name of the file with the language model of the training texts, in the folder of a run.
pub const CORPUS_MODEL: &str = "texts.lm";
/// Number of words of the longest n-grams of the model of the training texts.
const CORPUS_ORDER: usize = 3;

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
