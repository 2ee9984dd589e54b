//! Where the parts of a model file lie.

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::ModelBytes;
use crate::error::LanguageError;
use crate::quantize::CODES;
use crate::state::ORDER_MAX;
use crate::vocabulary::Vocabulary;

/// First bytes of a model file. The line ending is damaged when a program treats the file as text.
pub(crate) const MAGIC: [u8; 16] = *b"plimsoll-ngram\r\n";
const VERSION: u32 = 1;
/// Size of the header in bytes.
pub(crate) const HEADER: u64 = 112;
const HEADER_HASH_AT: u64 = 104;
/// Size of a place in a list of n-grams: 40 bits.
pub(crate) const PLACE: u64 = 5;
/// Size of a word with its log-probability, back-off and place of the longer n-grams.
pub(crate) const UNIGRAM: u64 = 8 + PLACE;
/// Most n-grams of one order: a place has 40 bits.
const COUNT_MAX: u64 = (1 << 40) - 2;

/// Header of a model file, and the places that follow from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub(crate) order: usize,
    /// Whether n-grams longer than a word have 8-bit numbers.
    pub(crate) is_quantized: bool,
    pub(crate) characters: bool,
    /// Number of n-grams of each order.
    pub(crate) counts: [u64; ORDER_MAX],
    pub(crate) text_len: u64,
}

impl Layout {
    pub(crate) const VOCABULARY: u64 = HEADER;

    /// Returns the size of a probability or a back-off.
    pub(crate) fn number(&self) -> u64 {
        if self.is_quantized { 1 } else { 4 }
    }

    /// Returns the size of an n-gram of `length` words.
    pub(crate) fn record(&self, length: usize) -> u64 {
        if length == self.order { 4 + self.number() } else { 4 + 2 * self.number() + PLACE }
    }

    /// Computes where the n-grams of each length begin, from one word on, then the codes, then the end. Nothing if the
    /// sum exceeds 64 bits.
    pub(crate) fn places(&self) -> Option<([u64; ORDER_MAX], u64, u64)> {
        let mut places = [0; ORDER_MAX];
        let mut at = Self::VOCABULARY.checked_add(Vocabulary::size(self.counts[0], self.text_len)?)?;
        for (index, place) in places.iter_mut().enumerate().take(self.order) {
            *place = at;
            let record = if index == 0 { UNIGRAM } else { self.record(index + 1) };
            // One more record closes the list: it has the end of the last n-gram's place.
            at = at.checked_add(self.counts[index].checked_add(1)?.checked_mul(record)?)?;
        }
        let codes = at;
        let n_tables = if self.is_quantized { (2 * self.order as u64).saturating_sub(3) } else { 0 };
        Some((places, codes, codes.checked_add(n_tables * CODES as u64 * 4)?))
    }

    /// Makes the header of a file with the given content behind the header.
    pub(crate) fn header(&self, body: &[u8]) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([self.order as u8, if self.is_quantized { 8 } else { 32 }, u8::from(self.characters), 0]);
        header.extend(self.counts.iter().flat_map(|count| count.to_le_bytes()));
        header.extend(self.text_len.to_le_bytes());
        header.extend([0; 8]);
        header.extend((body.len() as u64).to_le_bytes());
        header.extend(xxh3_64(body).to_le_bytes());
        header.extend(xxh3_64(&header).to_le_bytes());
        header
    }

    /// Reads the header, and checks it and the length of the file.
    pub(crate) fn read(bytes: &ModelBytes) -> Result<Self, LanguageError> {
        let header = bytes.slice(0, HEADER).ok_or_else(|| LanguageError::damaged("it ends in its header"))?;
        if header[..16] != MAGIC {
            return Err(LanguageError::damaged("it does not begin as a model of this format"));
        }
        if bytes.u32(16) != VERSION {
            let found = bytes.u32(16);
            let problem = format!("version {found} of the model format; this program reads version {VERSION}");
            return Err(LanguageError::Unsupported(problem));
        }
        if xxh3_64(&header[..HEADER_HASH_AT as usize]) != bytes.u64(HEADER_HASH_AT) {
            return Err(LanguageError::damaged("its header does not match its checksum"));
        }
        let (order, bits) = (usize::from(bytes.u8(20)), bytes.u8(21));
        let mut counts = [0; ORDER_MAX];
        for (index, count) in counts.iter_mut().enumerate() {
            *count = bytes.u64(24 + 8 * index as u64);
        }
        let possible = (1..=ORDER_MAX).contains(&order)
            && matches!(bits, 8 | 32)
            && (1..u64::from(u32::MAX)).contains(&counts[0])
            && counts.iter().all(|&count| count <= COUNT_MAX);
        let layout =
            Self { order, is_quantized: bits == 8, characters: bytes.u8(22) == 1, counts, text_len: bytes.u64(72) };
        let end = if possible { layout.places().map(|(_, _, end)| end) } else { None };
        let end = end.ok_or_else(|| LanguageError::damaged("its header names impossible sizes"))?;
        if end != bytes.len() || bytes.u64(88) != end - HEADER {
            return Err(LanguageError::damaged(format!("it has {} bytes, not {end}", bytes.len())));
        }
        Ok(layout)
    }

    /// Reads the whole file and compares it with its checksum.
    pub(crate) fn verify(bytes: &ModelBytes) -> Result<(), LanguageError> {
        let body = bytes.slice(HEADER, bytes.len().saturating_sub(HEADER)).unwrap_or(&[]);
        if xxh3_64(body) != bytes.u64(96) {
            return Err(LanguageError::damaged("its content does not match its checksum"));
        }
        Ok(())
    }
}
