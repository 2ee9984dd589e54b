//! Keys of records.

use xxhash_rust::xxh3::Xxh3Default;

/// Key of a record: a 128-bit hash of everything that its values depend on.
///
/// The chance of a collision is 1 in 10²⁰ for a store of a thousand million records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreKey(u128);

/// Builder of the key of many parts.
#[derive(Default)]
pub(crate) struct KeyBuilder(Xxh3Default);

impl KeyBuilder {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(crate) fn finish(self) -> StoreKey {
        StoreKey(self.0.digest128())
    }
}

impl StoreKey {
    /// Computes the key of a list of parts, such as the content of an audio file and the parameters of its features.
    ///
    /// The boundaries of the parts matter: `["ab", "c"]` and `["a", "bc"]` have different keys.
    pub fn new(parts: &[&[u8]]) -> Self {
        let mut key = KeyBuilder::default();
        parts.iter().for_each(|part| key.add(part));
        key.finish()
    }

    /// Returns the first 64 bits of the key in hexadecimal.
    pub(crate) fn short(self) -> String {
        format!("{:016x}", self.short_bits())
    }

    /// Returns the first 64 bits of the key.
    pub(crate) fn short_bits(self) -> u64 {
        (self.0 >> 64) as u64
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}
