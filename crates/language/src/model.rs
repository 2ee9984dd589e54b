//! A back-off n-gram model and its scores.

use std::path::Path;
use std::sync::Arc;

use crate::bytes::ModelBytes;
use crate::complete::complete;
use crate::error::LanguageError;
use crate::layout::{HEADER, Layout};
use crate::ngrams::{ModelData, NgramTable, continues};
use crate::quantize::Quantization;
use crate::state::{ORDER_MAX, State};
use crate::table::{Table, encode};
use crate::vocabulary::{UNKNOWN, Vocabulary};

/// Largest model file whose whole content [`NgramModel::open`] compares with its checksum: some milliseconds of work.
const VERIFIED_BYTES_MAX: u64 = 64 << 20;

/// What the words of a model are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Words, separated by white space.
    #[default]
    Words,
    /// Single characters. U+2581, the lower one eighth block, stands for the space between two words.
    Characters,
}

/// Back-off n-gram model.
///
/// It comes from an ARPA file, a binary file of KenLM, a file of its own format, or [`train`](crate::train). Scores are
/// logarithms to base 10, as in ARPA files. A clone shares the content.
///
/// ```
/// use plimsoll_language::{NgramModel, TrainOptions, train};
///
/// let (model, _) = train(["the ship sinks", "the ship floats"], &TrainOptions::new(2))?;
/// let (the, after_the) = model.score_word(&model.begin_state(), "the");
/// let (ship, _) = model.score_word(&after_the, "ship");
/// let (hull, _) = model.score_word(&after_the, "hull");
/// assert!(ship > hull && the < 0.0);
/// # Ok::<(), plimsoll_language::LanguageError>(())
/// ```
#[derive(Clone, Debug)]
pub struct NgramModel {
    vocabulary: Vocabulary,
    table: Arc<dyn NgramTable>,
    counts: Vec<u64>,
    unit: Unit,
    begin: Option<u32>,
    end: Option<u32>,
    /// Bytes of the file, when the model has the format of its own.
    file: Option<Arc<ModelBytes>>,
}

impl NgramModel {
    /// Uses a file of the crate's own format, and compares it with its checksum if it is small enough.
    pub(crate) fn from_own_file(bytes: ModelBytes) -> Result<Self, LanguageError> {
        let model = Self::from_file(bytes)?;
        if model.file.as_ref().is_some_and(|bytes| bytes.len() <= VERIFIED_BYTES_MAX) {
            model.verify()?;
        }
        Ok(model)
    }

    /// Reads the whole file of a model and compares it with its checksum. Models of other formats have none.
    ///
    /// # Errors
    /// When the content has changed since the file was written.
    pub fn verify(&self) -> Result<(), LanguageError> {
        self.file.as_ref().map_or(Ok(()), |bytes| Layout::verify(bytes))
    }

    fn from_file(bytes: ModelBytes) -> Result<Self, LanguageError> {
        let layout = Layout::read(&bytes)?;
        let bytes = Arc::new(bytes);
        let vocabulary = Vocabulary::new(Arc::clone(&bytes), HEADER, layout.counts[0], layout.text_len);
        let counts = layout.counts[..layout.order].to_vec();
        let unit = if layout.characters { Unit::Characters } else { Unit::Words };
        let table = Arc::new(Table::new(Arc::clone(&bytes), layout));
        Ok(Self { file: Some(bytes), ..Self::from_parts(vocabulary, table, counts, unit) })
    }

    pub(crate) fn from_parts(vocabulary: Vocabulary, table: Arc<dyn NgramTable>, counts: Vec<u64>, unit: Unit) -> Self {
        let (begin, end) = (vocabulary.id("<s>"), vocabulary.id("</s>"));
        Self { vocabulary, table, counts, unit, begin, end, file: None }
    }

    /// Makes a model in memory.
    pub(crate) fn from_data(mut data: ModelData) -> Result<Self, LanguageError> {
        if data.longer.len() >= ORDER_MAX {
            let problem = format!("n-grams of {} words; at most {ORDER_MAX} are supported", data.longer.len() + 1);
            return Err(LanguageError::Unsupported(problem));
        }
        complete(&mut data)?;
        Self::from_file(ModelBytes::Owned(encode(&data, Quantization::None)))
    }

    /// Lists the content of the model. The n-grams are sorted from the last word to the first.
    pub(crate) fn data(&self) -> Result<ModelData, LanguageError> {
        let unlisted = "the hash tables of KenLM do not say which words an n-gram has; convert the ARPA file instead";
        let longer = self.table.list().ok_or_else(|| LanguageError::Unsupported(unlisted.into()))?;
        let n_words = self.vocabulary.len();
        if longer.iter().any(|list| list.words.iter().any(|&word| word >= n_words)) {
            return Err(LanguageError::damaged(format!("an n-gram has a word that is none of its {n_words} words")));
        }
        let unigram = |id| {
            let entry = self.table.unigram(id);
            (entry.prob, entry.backoff)
        };
        Ok(ModelData {
            words: self.words().map(str::to_owned).collect(),
            unigrams: (0..self.vocabulary.len()).map(unigram).collect(),
            longer,
            characters: self.unit == Unit::Characters,
        })
    }

    /// Writes the model into a file of this crate's own format: beside its place, then renamed, so that a program that
    /// has the old file open keeps its content.
    ///
    /// # Errors
    /// When the file cannot be written, the model's own file is damaged, or the model was read from hash tables of KenLM:
    /// they do not say which words an n-gram has.
    pub fn save(&self, path: impl AsRef<Path>, quantization: Quantization) -> Result<(), LanguageError> {
        let mut data = self.data()?;
        for list in &mut data.longer {
            list.sort();
        }
        crate::files::write_atomically(path.as_ref(), &encode(&data, quantization))
    }

    /// Returns the number of words of the longest n-grams.
    pub fn order(&self) -> usize {
        self.counts.len()
    }

    /// Returns the number of n-grams of each order, from one word on.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns what the words of the model are. A foreign file does not say it; its words count as words.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Says what the words of a model from a foreign file are.
    pub fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Iterates over the words by their id, with `<unk>`, `<s>` and `</s>`.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        (0..self.vocabulary.len()).map(|id| self.vocabulary.word(id))
    }

    /// Returns the id of `word`; nothing if the model does not know it. The unknown word itself has id 0.
    pub fn id(&self, word: &str) -> Option<u32> {
        self.vocabulary.id(word)
    }

    /// Returns the context at the start of a sentence. Without the word `<s>` in the model it is empty.
    pub fn begin_state(&self) -> State {
        let Some(begin) = self.begin.filter(|_| self.order() > 1) else { return State::default() };
        let mut state = State { length: 1, ..State::default() };
        state.words[0] = begin;
        state.backoffs[0] = self.table.unigram(begin).backoff;
        state
    }

    /// Scores the word with an id after a context: the log-probability to base 10, and the context after the word.
    ///
    /// An id that the model does not have counts as the unknown word.
    pub fn score(&self, state: &State, id: u32) -> (f32, State) {
        let id = if id < self.vocabulary.len() { id } else { UNKNOWN };
        let order = self.order();
        let mut entry = self.table.unigram(id);
        let (mut prob, mut found) = (entry.prob, 1);
        let mut next = State::default();
        next.words[0] = id;
        next.backoffs[0] = entry.backoff;
        next.length = u8::from(order > 1 && continues(entry.backoff));
        for (index, &word) in state.words().iter().enumerate() {
            let length = index + 2;
            if !entry.extends || length > order {
                break;
            }
            if length == order {
                if let Some(longest) = self.table.longest(word, &entry) {
                    (prob, found) = (longest, length);
                }
                break;
            }
            let Some(longer) = self.table.longer(length, word, &entry) else { break };
            entry = longer;
            (prob, found) = (entry.prob, length);
            next.words[length - 1] = word;
            next.backoffs[length - 1] = entry.backoff;
            if continues(entry.backoff) {
                next.length = length as u8;
            }
        }
        (prob + state.backed_off(found), next)
    }

    /// Scores a word by its text; see [`score`](Self::score).
    pub fn score_word(&self, state: &State, word: &str) -> (f32, State) {
        self.score(state, self.vocabulary.id(word).unwrap_or(UNKNOWN))
    }

    /// Scores the end of a sentence. Without the word `</s>` in the model it costs nothing.
    pub fn score_end(&self, state: &State) -> f32 {
        self.end.map_or(0.0, |end| self.score(state, end).0)
    }

    /// Scores a sentence with its start and end: the log-probability of its words, to base 10.
    ///
    /// The sentence is split into the units of the model: at white space, or into characters.
    pub fn score_sentence(&self, sentence: &str) -> f64 {
        let mut state = self.begin_state();
        let mut total = 0.0;
        for unit in self.unit.split(sentence) {
            let (prob, next) = self.score_word(&state, unit);
            total += f64::from(prob);
            state = next;
        }
        total + f64::from(self.score_end(&state))
    }

    /// Computes the perplexity of sentences: the ends count as words, unknown words count with the probability that the
    /// model gives them. Nothing for no sentences.
    pub fn perplexity<T: AsRef<str>>(&self, sentences: impl IntoIterator<Item = T>) -> Option<f64> {
        self.prediction(sentences).map(|prediction| prediction.perplexity)
    }

    /// Measures how well the model predicts sentences, as the program `query` of KenLM does. Nothing for no sentences.
    ///
    /// ```
    /// use plimsoll_language::{TrainOptions, train};
    ///
    /// let (model, _) = train(["a b", "a c", "b a"], &TrainOptions::new(2))?;
    /// let prediction = model.prediction(["a b", "a x"]).expect("there are sentences");
    /// assert_eq!((prediction.n_words, prediction.n_unknown), (6, 1));
    /// # Ok::<(), plimsoll_language::LanguageError>(())
    /// ```
    pub fn prediction<T: AsRef<str>>(&self, sentences: impl IntoIterator<Item = T>) -> Option<Prediction> {
        let (mut known, mut unknown) = ((0.0, 0usize), (0.0, 0usize));
        for sentence in sentences {
            let mut state = self.begin_state();
            for unit in self.unit.split(sentence.as_ref()) {
                let (prob, next) = self.score_word(&state, unit);
                let sum = if self.id(unit).is_some() { &mut known } else { &mut unknown };
                *sum = (sum.0 + f64::from(prob), sum.1 + 1);
                state = next;
            }
            known = (known.0 + f64::from(self.score_end(&state)), known.1 + 1);
        }
        let perplexity = |(total, n_words): (f64, usize)| 10f64.powf(-total / n_words as f64);
        (known.1 > 0).then(|| Prediction {
            perplexity: perplexity((known.0 + unknown.0, known.1 + unknown.1)),
            known_perplexity: perplexity(known),
            n_words: known.1 + unknown.1,
            n_unknown: unknown.1,
        })
    }
}

/// How well a model predicts some sentences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Perplexity of all words and ends of sentences.
    pub perplexity: f64,
    /// Perplexity without the words that the model does not know.
    pub known_perplexity: f64,
    /// Number of words and of ends of sentences.
    pub n_words: usize,
    /// Number of words that the model does not know.
    pub n_unknown: usize,
}

impl Unit {
    /// Splits a sentence into units. Between characters of two words stands one [`SPACE`](crate::SPACE).
    pub fn split(self, sentence: &str) -> impl Iterator<Item = &str> {
        let words = sentence.split_whitespace().enumerate();
        words.flat_map(move |(index, word)| {
            let space = (self == Unit::Characters && index > 0).then_some(SPACE);
            let whole = (self == Unit::Words).then_some(word);
            let characters = if self == Unit::Characters { word } else { "" };
            let each = characters.char_indices().map(move |(at, char)| &characters[at..at + char.len_utf8()]);
            space.into_iter().chain(whole).chain(each)
        })
    }
}

/// Unit of a character model that stands for the space between two words: U+2581, as in pieces of SentencePiece.
pub const SPACE: &str = "▁";
