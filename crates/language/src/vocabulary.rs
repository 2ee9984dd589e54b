//! The words of a model and their ids.

use std::sync::Arc;

use crate::bytes::ModelBytes;
use crate::error::LanguageError;

/// Id of the unknown word in every model.
pub const UNKNOWN: u32 = 0;

/// Largest length of a word in bytes.
pub(crate) const WORD_BYTES_MAX: usize = 4096;

/// The words of a model: from id to word by a table of offsets, from word to id by binary search.
///
/// A table that lies in the file as it is used needs no time to open. Three arrays follow each other: where each word
/// begins (and the last one ends), the ids in the order of their words, and the text.
#[derive(Clone, Debug)]
pub(crate) struct Vocabulary {
    bytes: Arc<ModelBytes>,
    at: u64,
    count: u64,
    text_len: u64,
}

impl Vocabulary {
    /// Computes the size of the arrays of `count` words with `text_len` bytes together.
    pub(crate) fn size(count: u64, text_len: u64) -> Option<u64> {
        count.checked_add(1)?.checked_mul(8)?.checked_add(count.checked_mul(4)?)?.checked_add(text_len)
    }

    /// Makes the arrays of `words`.
    pub(crate) fn encode(words: &[String], out: &mut Vec<u8>) {
        let mut end = 0u64;
        out.extend(end.to_le_bytes());
        for word in words {
            end += word.len() as u64;
            out.extend(end.to_le_bytes());
        }
        let mut order: Vec<u32> = (0..words.len() as u32).collect();
        order.sort_by_key(|&id| words[id as usize].as_bytes());
        out.extend(order.iter().flat_map(|id| id.to_le_bytes()));
        out.extend(words.iter().flat_map(|word| word.bytes()));
    }

    /// Uses the arrays at `at` in `bytes`. The caller has checked that they are there.
    pub(crate) fn new(bytes: Arc<ModelBytes>, at: u64, count: u64, text_len: u64) -> Self {
        Self { bytes, at, count, text_len }
    }

    pub(crate) fn from_words(words: &[String]) -> Self {
        let mut encoded = Vec::new();
        Self::encode(words, &mut encoded);
        let text_len = words.iter().map(|word| word.len() as u64).sum();
        Self::new(Arc::new(ModelBytes::Owned(encoded)), 0, words.len() as u64, text_len)
    }

    pub(crate) fn len(&self) -> u32 {
        self.count as u32
    }

    /// Returns the bytes of a word; nothing for an unknown id, or where the file is damaged.
    fn word_bytes(&self, id: u32) -> &[u8] {
        if u64::from(id) >= self.count {
            return &[];
        }
        let offset = self.at + u64::from(id) * 8;
        let (start, end) = (self.bytes.u64(offset), self.bytes.u64(offset + 8));
        let text = self.at + (self.count + 1) * 8 + self.count * 4;
        let size = end.checked_sub(start).filter(|_| end <= self.text_len).unwrap_or(0);
        self.bytes.slice(text + start.min(self.text_len), size).unwrap_or(&[])
    }

    pub(crate) fn word(&self, id: u32) -> &str {
        std::str::from_utf8(self.word_bytes(id)).unwrap_or("")
    }

    /// Returns the id of `word`; nothing for a word that the model does not know.
    pub(crate) fn id(&self, word: &str) -> Option<u32> {
        let order = self.at + (self.count + 1) * 8;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = (low + high) / 2;
            let id = self.bytes.u32(order + middle * 4);
            match self.word_bytes(id).cmp(word.as_bytes()) {
                std::cmp::Ordering::Equal => return Some(id),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// Checks that `word` can be a word of a model.
pub(crate) fn check_word(word: &str) -> Result<(), LanguageError> {
    if word.is_empty() || word.len() > WORD_BYTES_MAX {
        let quote: String = word.chars().take(20).collect();
        let problem = format!("the word \"{quote}\" has {} bytes, not from 1 to {WORD_BYTES_MAX}", word.len());
        return Err(LanguageError::Model(problem));
    }
    Ok(())
}
