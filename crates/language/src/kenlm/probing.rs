//! KenLM's hash tables with linear probing.

use std::sync::Arc;

use crate::bytes::ModelBytes;
use crate::error::LanguageError;
use crate::ngrams::{ENDS_HERE, Entry, NgramList, NgramTable};

use super::bits::split_sign;
use super::header::{Header, check_end};

/// Size of a word in the vocabulary: hash and id.
const WORD: u64 = 12;
const UNIGRAM: u64 = 8;
/// Size of an n-gram: hash, log-probability and back-off.
const MIDDLE: u64 = 16;
/// Size of an n-gram of the highest order: hash and log-probability.
const LONGEST: u64 = 12;

/// A hash table of one order.
#[derive(Debug)]
struct Buckets {
    at: u64,
    count: u64,
    entry: u64,
}

impl Buckets {
    fn new(at: u64, entries: u64, multiplier: f32, entry: u64) -> Self {
        let wanted = (multiplier * entries as f32) as u64;
        Self { at, count: wanted.max(entries.saturating_add(1)), entry }
    }

    fn end(&self) -> Option<u64> {
        self.count.checked_mul(self.entry)?.checked_add(self.at)
    }

    /// Finds the place of the n-gram with a hash. An empty place has the hash 0.
    fn find(&self, bytes: &ModelBytes, hash: u64) -> Option<u64> {
        let mut bucket = hash % self.count;
        for _ in 0..self.count {
            let at = self.at + bucket * self.entry;
            match bytes.u64(at) {
                found if found == hash => return Some(at + 8),
                0 => return None,
                _ => bucket = if bucket + 1 == self.count { 0 } else { bucket + 1 },
            }
        }
        None
    }
}

/// The hash tables of a file.
#[derive(Debug)]
pub(super) struct Probing {
    bytes: Arc<ModelBytes>,
    unigrams: u64,
    /// Tables from two words on.
    longer: Vec<Buckets>,
}

impl Probing {
    /// Finds the tables in a file, and the place where its words begin.
    pub(super) fn new(bytes: Arc<ModelBytes>, header: &Header) -> Result<(Self, u64), LanguageError> {
        let (at, n_words) = (header.size(), header.counts[0]);
        if bytes.u32(at) != 0 {
            return Err(LanguageError::Unsupported(format!("version {} of KenLM's vocabulary", bytes.u32(at))));
        }
        let vocabulary = Buckets::new(at + 8, n_words, header.multiplier, WORD);
        let unigrams = check_end(&bytes, vocabulary.end())?;
        let mut end = unigrams + (n_words + 1) * UNIGRAM;
        let mut longer = Vec::new();
        for (index, &count) in header.counts.iter().enumerate().skip(1) {
            let entry = if index + 1 == header.counts.len() { LONGEST } else { MIDDLE };
            let buckets = Buckets::new(end, count, header.multiplier, entry);
            end = check_end(&bytes, buckets.end())?;
            longer.push(buckets);
        }
        Ok((Self { bytes, unigrams, longer }, end))
    }
}

/// Extends the hash of an n-gram by the word before it.
fn combine(hash: u64, word: u32) -> u64 {
    let word = u64::from(word).wrapping_add(1).wrapping_mul(17_894_857_484_156_487_943);
    hash.wrapping_mul(8_978_948_897_894_561_157) ^ word
}

impl NgramTable for Probing {
    fn unigram(&self, word: u32) -> Entry {
        let at = self.unigrams + u64::from(word) * UNIGRAM;
        let (prob, extends) = split_sign(self.bytes.f32(at));
        Entry { prob, backoff: self.bytes.f32(at + 4), begin: u64::from(word), end: 0, extends }
    }

    fn longer(&self, length: usize, word: u32, shorter: &Entry) -> Option<Entry> {
        let hash = combine(shorter.begin, word);
        let at = self.longer[length - 2].find(&self.bytes, hash)?;
        let (prob, extends) = split_sign(self.bytes.f32(at));
        Some(Entry { prob, backoff: self.bytes.f32(at + 4), begin: hash, end: 0, extends })
    }

    fn longest(&self, word: u32, shorter: &Entry) -> Option<f32> {
        let at = self.longer.last()?.find(&self.bytes, combine(shorter.begin, word))?;
        Some(split_sign(self.bytes.f32(at)).0)
    }

    fn list(&self) -> Option<Vec<NgramList>> {
        // The hashes do not say which words an n-gram has.
        None
    }
}

// The tables mark an n-gram that begins no longer one as this crate does.
const _: () = assert!(ENDS_HERE.to_bits() == 1 << 31);
