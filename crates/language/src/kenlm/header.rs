//! The header of a binary file of KenLM.

use crate::bytes::ModelBytes;
use crate::error::LanguageError;
use crate::state::ORDER_MAX;

const START: &[u8] = b"mmap lm http://kheafield.com/code ";
const VERSION: &[u8] = b"format version 5\n";
/// Offset of numbers of known value, which show the byte order and the sizes of the machine.
const SANITY_AT: u64 = 56;
const PARAMETERS_AT: u64 = 88;
const COUNTS_AT: u64 = 108;

/// Returns whether a file begins as a binary file of KenLM.
pub(crate) fn is_kenlm(start: &[u8]) -> bool {
    start.starts_with(START)
}

/// Data structure of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Probing,
    Trie { is_quantized: bool, has_arrays: bool },
}

/// What the header says.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Number of places of a hash table for each entry.
    pub(super) multiplier: f32,
    pub(super) counts: Vec<u64>,
}

impl Header {
    pub(super) fn read(bytes: &ModelBytes) -> Result<Self, LanguageError> {
        let rest = bytes.all().get(START.len()..).unwrap_or(&[]);
        if rest.starts_with(b"incomplete") {
            return Err(LanguageError::damaged("KenLM did not finish writing it"));
        }
        if !rest.starts_with(VERSION) {
            return Err(LanguageError::Unsupported("a version of KenLM's binary format other than 5".into()));
        }
        let sanity = [0.0f32.to_bits(), 1.0f32.to_bits(), (-0.5f32).to_bits(), 1, u32::MAX, 0, 1, 0];
        if sanity.iter().zip(0..).any(|(&value, at)| bytes.u32(SANITY_AT + 4 * at) != value) {
            return Err(LanguageError::Unsupported("a binary file of KenLM from another kind of machine".into()));
        }
        let order = usize::from(bytes.u8(PARAMETERS_AT));
        let multiplier = bytes.f32(PARAMETERS_AT + 4);
        let kind = match bytes.u32(PARAMETERS_AT + 8) {
            0 => Kind::Probing,
            1 => return Err(LanguageError::Unsupported("KenLM's hash tables with rest costs".into())),
            kind @ 2..=5 => Kind::Trie { is_quantized: kind % 2 == 1, has_arrays: kind >= 4 },
            kind => return Err(LanguageError::Unsupported(format!("KenLM's data structure {kind}"))),
        };
        let search_version = bytes.u32(PARAMETERS_AT + 16);
        if search_version != u32::from(kind != Kind::Probing) {
            return Err(LanguageError::Unsupported(format!("version {search_version} of KenLM's {kind:?}")));
        }
        if bytes.u8(PARAMETERS_AT + 12) == 0 {
            let problem = "a binary file of KenLM without its words; `build_binary` leaves them out only with -i";
            return Err(LanguageError::Unsupported(problem.into()));
        }
        if !(2..=ORDER_MAX).contains(&order) {
            return Err(LanguageError::Unsupported(format!("a binary file of KenLM of order {order}")));
        }
        let counts: Vec<u64> = (0..order as u64).map(|index| bytes.u64(COUNTS_AT + 8 * index)).collect();
        if !(1.0..1e6).contains(&multiplier) || !(1..u64::from(u32::MAX)).contains(&counts[0]) {
            return Err(LanguageError::damaged("its header names impossible sizes"));
        }
        Ok(Self { kind, multiplier, counts })
    }

    /// Returns the size of the header, behind which the vocabulary begins.
    pub(super) fn size(&self) -> u64 {
        (COUNTS_AT + 8 * self.counts.len() as u64).next_multiple_of(8)
    }
}

/// Checks that a file has the bytes before `end`. Nothing stands for a sum above 64 bits.
pub(super) fn check_end(bytes: &ModelBytes, end: Option<u64>) -> Result<u64, LanguageError> {
    end.filter(|&end| end <= bytes.len())
        .ok_or_else(|| LanguageError::damaged(format!("it has {} bytes, fewer than its header says", bytes.len())))
}
