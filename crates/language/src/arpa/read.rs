//! Reads ARPA text.

use std::io::{BufRead, Read};

use rustc_hash::FxHashMap;

use crate::error::LanguageError;
use crate::ngrams::{ENDS_HERE, ModelData, NgramList};
use crate::state::ORDER_MAX;
use crate::vocabulary::{UNKNOWN, check_word};

/// Longest line in bytes: six of the longest words fit.
const LINE_BYTES_MAX: u64 = 1 << 16;
/// Log-probability of unknown words in a model that does not name them, as in KenLM.
const UNKNOWN_PROB: f32 = -100.0;

/// Lines of a text with their numbers.
struct Lines<R> {
    text: R,
    line: String,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn error(&self, problem: impl Into<String>) -> LanguageError {
        LanguageError::Arpa { line: self.number, problem: problem.into() }
    }

    /// Reads the next line that is not empty, without white space at its ends; nothing at the end of the text.
    fn next(&mut self) -> Result<Option<&str>, LanguageError> {
        loop {
            let mut bytes = std::mem::take(&mut self.line).into_bytes();
            bytes.clear();
            self.number += 1;
            let mut limited = self.text.by_ref().take(LINE_BYTES_MAX);
            let n_read = limited.read_until(b'\n', &mut bytes).map_err(LanguageError::Stream)?;
            if n_read == 0 {
                return Ok(None);
            }
            if n_read as u64 == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
                return Err(self.error(format!("it is longer than {LINE_BYTES_MAX} bytes")));
            }
            if bytes.contains(&0) {
                return Err(self.error("it has a zero byte, so the file is damaged or no text"));
            }
            self.line = String::from_utf8(bytes).map_err(|_| self.error("it is not UTF-8"))?;
            if self.number == 1 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len_utf8());
            }
            if !self.line.trim_matches(SPACES).is_empty() {
                return Ok(Some(self.line.trim_matches(SPACES)));
            }
        }
    }

    fn expect(&mut self) -> Result<&str, LanguageError> {
        let number = self.number;
        let ended = || LanguageError::Arpa { line: number, problem: "the text ends before \\end\\".into() };
        self.next()?.ok_or_else(ended)
    }
}

/// Mark with which some programs begin a file.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Characters between the fields of a line. Others, such as a no-break space, belong to words.
const SPACES: [char; 4] = ['\t', ' ', '\n', '\r'];

/// Reads a model.
pub(super) fn read(text: impl BufRead) -> Result<ModelData, LanguageError> {
    let mut lines = Lines { text, line: String::new(), number: 0 };
    let counts = read_counts(&mut lines)?;
    let mut words = Words::default();
    let mut unigrams = Vec::new();
    let mut longer = Vec::new();
    // `read_counts` has read the first header.
    for order in 1..=counts.len() {
        let header = format!("\\{order}-grams:");
        if lines.line.trim_matches(SPACES) != header {
            return Err(lines.error(format!("this is not \"{header}\"")));
        }
        let is_highest = order == counts.len();
        let mut list = NgramList::new(order);
        let mut n_read = 0;
        while !lines.expect()?.starts_with('\\') {
            n_read += 1;
            if n_read > counts[order - 1] {
                return Err(lines.error(format!("there are more {order}-grams than {}", counts[order - 1])));
            }
            let line = lines.line.trim_matches(SPACES);
            let read = Fields::read(line, order, is_highest).and_then(|fields| match order {
                1 => words.add(fields.words[0], &mut unigrams, (fields.prob, fields.backoff)),
                _ => words.push(&fields, order, is_highest, &mut list),
            });
            read.map_err(|problem| lines.error(problem))?;
        }
        if n_read != counts[order - 1] {
            return Err(lines.error(format!("there are {n_read} {order}-grams, not {}", counts[order - 1])));
        }
        if order > 1 {
            longer.push(list);
        }
    }
    if lines.line.trim_matches(SPACES) != "\\end\\" {
        return Err(lines.error("this is not \"\\end\\\""));
    }
    Ok(ModelData { words: words.list, unigrams, longer, characters: false })
}

/// Reads the counts and the line after them, which is the header of the words.
fn read_counts<R: BufRead>(lines: &mut Lines<R>) -> Result<Vec<u64>, LanguageError> {
    while lines.expect()? != "\\data\\" {
        // Other programs write remarks before the data, but a file without any is no ARPA file.
        if lines.number > 1000 {
            return Err(lines.error("no line before it is \"\\data\\\""));
        }
    }
    let mut counts = Vec::new();
    while let Some(count) = lines.expect()?.strip_prefix("ngram ") {
        let (order, count) = count.split_once('=').unwrap_or_default();
        match (order.trim().parse::<usize>(), count.trim().parse::<u64>()) {
            (Ok(order), Ok(count)) if order == counts.len() + 1 && order <= ORDER_MAX => counts.push(count),
            (Ok(order), Ok(_)) if order > ORDER_MAX => {
                return Err(lines.error(format!("n-grams of {order} words; at most {ORDER_MAX} are supported")));
            }
            _ => return Err(lines.error("this is not the count of the next order, such as \"ngram 1=200\"")),
        }
    }
    if counts.is_empty() {
        return Err(lines.error("there is no line \"ngram 1=\" before it"));
    }
    Ok(counts)
}

/// Fields of the line of an n-gram.
struct Fields<'a> {
    prob: f32,
    words: [&'a str; ORDER_MAX],
    backoff: f32,
}

impl<'a> Fields<'a> {
    fn read(line: &'a str, order: usize, is_highest: bool) -> Result<Self, String> {
        let mut fields = line.split(SPACES).filter(|field| !field.is_empty());
        let prob = number(fields.next().unwrap_or_default())?;
        if prob > 0.0 {
            return Err(format!("the log-probability {prob} is above zero"));
        }
        let mut words = [""; ORDER_MAX];
        for word in &mut words[..order] {
            *word = fields.next().ok_or_else(|| format!("it has less than {order} words"))?;
        }
        let backoff = fields.next().map_or(Ok(0.0), number)?;
        if fields.next().is_some() {
            return Err(format!("it has more than {order} words and two numbers"));
        }
        if is_highest && backoff != 0.0 {
            return Err("an n-gram of the highest order has a back-off".into());
        }
        Ok(Self { prob, words, backoff: if backoff == 0.0 { ENDS_HERE } else { backoff } })
    }
}

fn number(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if !value.is_nan() => Ok(value.max(f32::MIN)),
        _ => Err(format!("\"{text}\" is no number")),
    }
}

/// Words of the file by their order, with the unknown word first.
struct Words {
    list: Vec<String>,
    ids: FxHashMap<String, u32>,
    has_unknown: bool,
}

impl Default for Words {
    fn default() -> Self {
        Self { list: vec!["<unk>".into()], ids: FxHashMap::default(), has_unknown: false }
    }
}

impl Words {
    fn add(&mut self, word: &str, unigrams: &mut Vec<(f32, f32)>, weights: (f32, f32)) -> Result<(), String> {
        if unigrams.is_empty() {
            unigrams.push((UNKNOWN_PROB, ENDS_HERE));
        }
        if matches!(word, "<unk>" | "<UNK>") {
            unigrams[UNKNOWN as usize] = weights;
            return if std::mem::replace(&mut self.has_unknown, true) { Err(twice(word)) } else { Ok(()) };
        }
        check_word(word).map_err(|error| error.to_string())?;
        let id = self.list.len() as u32;
        if self.ids.insert(word.to_owned(), id).is_some() {
            return Err(twice(word));
        }
        self.list.push(word.to_owned());
        unigrams.push(weights);
        Ok(())
    }

    fn push(&self, fields: &Fields<'_>, order: usize, is_highest: bool, list: &mut NgramList) -> Result<(), String> {
        let mut ids = [UNKNOWN; ORDER_MAX];
        for (id, &word) in ids.iter_mut().zip(&fields.words[..order]) {
            if !matches!(word, "<unk>" | "<UNK>") {
                *id = *self.ids.get(word).ok_or_else(|| format!("\"{word}\" is none of the words of the file"))?;
            }
        }
        list.push(ids[..order].iter().rev().copied(), fields.prob, (!is_highest).then_some(fields.backoff));
        Ok(())
    }
}

fn twice(word: &str) -> String {
    format!("\"{word}\" stands there twice")
}
