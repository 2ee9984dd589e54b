//! Binary files of KenLM, used where they lie.
//!
//! The layouts follow KenLM's `lm/binary_format.cc`, `lm/search_hashed.hh`, `lm/trie.cc`, `lm/quantize.hh` and
//! `lm/bhiksha.cc`, format version 5 of a 64-bit little-endian machine.

mod bits;
mod header;
mod probing;
mod trie;

use std::sync::Arc;

use crate::bytes::ModelBytes;
use crate::error::LanguageError;
use crate::model::{NgramModel, Unit};
use crate::ngrams::NgramTable;
use crate::vocabulary::{Vocabulary, check_word};

use header::{Header, Kind};

pub(crate) use header::is_kenlm;

/// Opens a binary file of KenLM.
pub(crate) fn open(bytes: ModelBytes) -> Result<NgramModel, LanguageError> {
    let bytes = Arc::new(bytes);
    let header = Header::read(&bytes)?;
    let (table, words_at, n_words): (Arc<dyn NgramTable>, u64, u64) = match header.kind {
        Kind::Probing => {
            let (table, end) = probing::Probing::new(Arc::clone(&bytes), &header)?;
            (Arc::new(table), end, u64::from(bytes.u32(header.size() + 4)))
        }
        Kind::Trie { .. } => {
            let (table, end) = trie::Trie::new(Arc::clone(&bytes), &header)?;
            (Arc::new(table), end, bytes.u64(header.size()).saturating_add(1))
        }
    };
    if n_words > header.counts[0].saturating_add(1) {
        return Err(LanguageError::damaged(format!("it names {n_words} words, more than {}", header.counts[0])));
    }
    let words = read_words(&bytes, words_at, n_words)?;
    Ok(NgramModel::from_parts(Vocabulary::from_words(&words), table, header.counts, Unit::Words))
}

/// Reads the words from the end of a file: each with a zero byte behind it, in the order of their ids.
fn read_words(bytes: &ModelBytes, at: u64, n_words: u64) -> Result<Vec<String>, LanguageError> {
    let text = bytes.slice(at, bytes.len().saturating_sub(at)).unwrap_or(&[]);
    let mut words = Vec::new();
    // A zero byte ends each word, so there is one empty piece behind the last.
    for word in text.strip_suffix(&[0]).unwrap_or(text).split(|&byte| byte == 0) {
        let word = str::from_utf8(word).map_err(|_| LanguageError::damaged("a word is not UTF-8"))?;
        check_word(word)?;
        words.push(word.to_owned());
        if words.len() as u64 > n_words {
            break;
        }
    }
    if words.len() as u64 != n_words || words.first().is_none_or(|word| word != "<unk>") {
        let problem = format!("the words at its end are {}, not {n_words} from <unk> on", words.len());
        return Err(LanguageError::damaged(problem));
    }
    Ok(words)
}
