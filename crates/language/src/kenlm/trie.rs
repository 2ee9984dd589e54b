//! KenLM's tries: sorted arrays of packed bits, with or without quantization and compressed pointers.

use std::sync::Arc;

use crate::bytes::ModelBytes;
use crate::error::LanguageError;
use crate::ngrams::{Entry, NgramList, NgramTable};

use super::bits::{float, integer, negative, required};
use super::header::{Header, Kind, check_end};

/// Size of a word: log-probability, back-off and place of its n-grams.
const UNIGRAM: u64 = 16;
/// Bits of a log-probability and a back-off without quantization.
const PROB_BITS: u64 = 31;
const BACKOFF_BITS: u64 = 32;

/// How the numbers of n-grams longer than a word are stored.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    prob_bits: u64,
    backoff_bits: u64,
    /// Where the values of the codes lie; nothing without quantization.
    codes: Option<u64>,
}

/// Upper parts of compressed pointers: the index of the first n-gram whose pointer has each upper part.
#[derive(Debug)]
struct Uppers {
    at: u64,
    count: u64,
}

/// N-grams of one order.
#[derive(Debug)]
struct Level {
    at: u64,
    count: u64,
    word_bits: u64,
    number_bits: u64,
    pointer_bits: u64,
    uppers: Option<Uppers>,
}

impl Level {
    fn bits(&self) -> u64 {
        self.word_bits + self.number_bits + self.pointer_bits
    }

    fn end(&self) -> Option<u64> {
        let bits = self.count.checked_add(1)?.checked_mul(self.bits())?;
        self.at.checked_add(bits.div_ceil(8))?.checked_add(8)
    }

    fn word(&self, bytes: &ModelBytes, index: u64) -> u32 {
        integer(bytes, self.at, index * self.bits(), self.word_bits) as u32
    }

    /// Reads where the n-grams begin that end with the n-gram at `index`.
    fn pointer(&self, bytes: &ModelBytes, index: u64) -> u64 {
        let lower = integer(bytes, self.at, (index + 1) * self.bits() - self.pointer_bits, self.pointer_bits);
        let Some(uppers) = &self.uppers else { return lower };
        // The last upper part whose first n-gram is not behind this one.
        let (mut low, mut high) = (0, uppers.count);
        while low < high {
            let middle = low.midpoint(high);
            if bytes.u64(uppers.at + middle * 8) <= index {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low.saturating_sub(1) << self.pointer_bits) | lower
    }
}

/// The trie of a file.
#[derive(Debug)]
pub(super) struct Trie {
    bytes: Arc<ModelBytes>,
    n_words: u64,
    unigrams: u64,
    numbers: Numbers,
    /// N-grams from two words on.
    levels: Vec<Level>,
}

impl Trie {
    /// Finds the parts of a file, and the place where its words begin.
    pub(super) fn new(bytes: Arc<ModelBytes>, header: &Header) -> Result<(Self, u64), LanguageError> {
        let Kind::Trie { is_quantized, has_arrays } = header.kind else {
            unreachable!("the caller has matched the kind");
        };
        let (order, n_words) = (header.counts.len(), header.counts[0]);
        // The vocabulary: the number of words, then their hashes.
        let at = check_end(&bytes, Some(header.size() + 8 + 8 * n_words))?;
        let (numbers, unigrams) = numbers(&bytes, at, order, is_quantized)?;
        let mut end = check_end(&bytes, Some(unigrams + (n_words + 2) * UNIGRAM))?;
        let chop_max = if has_arrays && order > 2 { Some(read_chop(&bytes, end)?) } else { None };
        let mut levels = Vec::new();
        for (index, &count) in header.counts.iter().enumerate().skip(1) {
            let next = header.counts.get(index + 1).copied();
            if count >= 1 << 40 {
                return Err(LanguageError::damaged("its header names impossible sizes"));
            }
            let mut level = Level {
                at: end,
                count,
                word_bits: required(n_words),
                number_bits: numbers.prob_bits + if next.is_some() { numbers.backoff_bits } else { 0 },
                pointer_bits: next.map_or(0, required),
                uppers: None,
            };
            if let (Some(next), Some(chop_max)) = (next, chop_max) {
                compress(&mut level, next.min(1 << 40), chop_max);
            }
            end = check_end(&bytes, level.end())?;
            levels.push(level);
        }
        Ok((Self { bytes, n_words, unigrams, numbers, levels }, end))
    }

    fn find(&self, length: usize, word: u32, shorter: &Entry) -> Option<u64> {
        let level = &self.levels[length - 2];
        let (mut low, mut high) = (shorter.begin, shorter.end.min(level.count));
        while low < high {
            let middle = low.midpoint(high);
            match level.word(&self.bytes, middle).cmp(&word) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Reads the value of a code of `bits` bits in the table for n-grams of `length` words.
    fn decoded(&self, codes: u64, length: usize, is_backoff: bool, code: u64) -> f32 {
        let numbers = &self.numbers;
        let pair = (1u64 << numbers.prob_bits) + (1 << numbers.backoff_bits);
        let skipped = pair * (length as u64 - 2) + if is_backoff { 1 << numbers.prob_bits } else { 0 };
        self.bytes.f32(codes + 4 * (skipped + code))
    }

    fn entry(&self, length: usize, index: u64) -> Entry {
        let (level, numbers) = (&self.levels[length - 2], &self.numbers);
        let bit = index * level.bits() + level.word_bits;
        let (prob, backoff) = match numbers.codes {
            None => (negative(&self.bytes, level.at, bit), float(&self.bytes, level.at, bit + PROB_BITS)),
            Some(codes) => {
                let backoff = integer(&self.bytes, level.at, bit, numbers.backoff_bits);
                let prob = integer(&self.bytes, level.at, bit + numbers.backoff_bits, numbers.prob_bits);
                (self.decoded(codes, length, false, prob), self.decoded(codes, length, true, backoff))
            }
        };
        let (begin, end) = (level.pointer(&self.bytes, index), level.pointer(&self.bytes, index + 1));
        Entry { prob, backoff, begin, end, extends: begin < end }
    }

    fn longest_prob(&self, index: u64) -> f32 {
        let length = self.levels.len() + 1;
        let level = &self.levels[length - 2];
        let bit = index * level.bits() + level.word_bits;
        match self.numbers.codes {
            None => negative(&self.bytes, level.at, bit),
            Some(codes) => {
                let code = integer(&self.bytes, level.at, bit, self.numbers.prob_bits);
                self.decoded(codes, length, false, code)
            }
        }
    }

    /// Adds the n-grams that end with `newest_first` to the lists.
    fn collect(&self, newest_first: &mut Vec<u32>, shorter: &Entry, lists: &mut [NgramList]) {
        let length = newest_first.len() + 1;
        let Some(level) = self.levels.get(length - 2) else { return };
        for index in shorter.begin..shorter.end.min(level.count) {
            newest_first.push(level.word(&self.bytes, index));
            let list = &mut lists[length - 2];
            if length == self.levels.len() + 1 {
                list.push(newest_first.iter().copied(), self.longest_prob(index), None);
            } else {
                let entry = self.entry(length, index);
                list.push(newest_first.iter().copied(), entry.prob, Some(entry.backoff));
                self.collect(newest_first, &entry, lists);
            }
            newest_first.pop();
        }
    }
}

/// Reads how numbers are stored, and returns where the words begin.
fn numbers(bytes: &ModelBytes, at: u64, order: usize, is_quantized: bool) -> Result<(Numbers, u64), LanguageError> {
    if !is_quantized {
        return Ok((Numbers { prob_bits: PROB_BITS, backoff_bits: BACKOFF_BITS, codes: None }, at));
    }
    let (version, prob_bits, backoff_bits) = (bytes.u8(at), u64::from(bytes.u8(at + 1)), u64::from(bytes.u8(at + 2)));
    if version != 2 {
        return Err(LanguageError::Unsupported(format!("version {version} of KenLM's quantization")));
    }
    if !(1..=25).contains(&prob_bits) || !(1..=25).contains(&backoff_bits) {
        return Err(LanguageError::damaged("its numbers have impossible sizes"));
    }
    let longest = 4u64 << prob_bits;
    let tables = (order as u64 - 2) * (longest + (4 << backoff_bits)) + longest;
    let end = check_end(bytes, (at + 8).checked_add(tables))?;
    Ok((Numbers { prob_bits, backoff_bits, codes: Some(at + 8) }, end))
}

/// Reads the largest number of bits that are removed from pointers.
fn read_chop(bytes: &ModelBytes, at: u64) -> Result<u64, LanguageError> {
    match bytes.u8(at) {
        0 => Ok(u64::from(bytes.u8(at + 1))),
        version => Err(LanguageError::Unsupported(format!("version {version} of KenLM's pointer compression"))),
    }
}

/// Finds the upper parts of the pointers of a level, which lie before its n-grams.
///
/// As many bits are removed as make the level smallest: each upper part costs 64 bits, each removed bit saves one for
/// each n-gram. `next` is the number of n-grams of the next order.
fn compress(level: &mut Level, next: u64, chop_max: u64) {
    let required = required(next);
    let offsets = level.count + 1;
    let cost = |chop: u64| {
        let table = next.checked_shr((required - chop) as u32).unwrap_or(0);
        i128::from(table) * 64 - i128::from(offsets) * i128::from(chop)
    };
    let chop = (0..=required.min(chop_max)).min_by_key(|&chop| cost(chop)).unwrap_or(0);
    let count = next.checked_shr((required - chop) as u32).unwrap_or(0) + 1;
    let start = level.at;
    level.uppers = Some(Uppers { at: start.next_multiple_of(8) + 8, count });
    level.pointer_bits = required - chop;
    level.at = start.saturating_add(8 * (1 + count) + 7);
}

impl NgramTable for Trie {
    fn unigram(&self, word: u32) -> Entry {
        let at = self.unigrams + u64::from(word) * UNIGRAM;
        let (begin, end) = (self.bytes.u64(at + 8), self.bytes.u64(at + 8 + UNIGRAM));
        Entry { prob: self.bytes.f32(at), backoff: self.bytes.f32(at + 4), begin, end, extends: begin < end }
    }

    fn longer(&self, length: usize, word: u32, shorter: &Entry) -> Option<Entry> {
        self.find(length, word, shorter).map(|index| self.entry(length, index))
    }

    fn longest(&self, word: u32, shorter: &Entry) -> Option<f32> {
        self.find(self.levels.len() + 1, word, shorter).map(|index| self.longest_prob(index))
    }

    fn list(&self) -> Option<Vec<NgramList>> {
        let mut lists: Vec<NgramList> = (2..=self.levels.len() + 1).map(NgramList::new).collect();
        for word in 0..self.n_words as u32 {
            self.collect(&mut vec![word], &self.unigram(word), &mut lists);
        }
        Some(lists)
    }
}
