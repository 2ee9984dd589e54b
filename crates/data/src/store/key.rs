//! Keys of records.

use xxhash_rust::xxh3::Xxh3Default;

/// Key of a record: a 128-bit hash of everything that its values depend on.
///
/// The chance of a collision is 1 in 10²⁰ for a store of a thousand million records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreKey(u128);

impl StoreKey {
    /// Computes the key of a list of parts, such as the content of an audio file and the parameters of its features.
    ///
    /// The boundaries of the parts matter: `["ab", "c"]` and `["a", "bc"]` have different keys.
    pub fn new(parts: &[&[u8]]) -> Self {
        let mut hash = Xxh3Default::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.digest128())
    }

    /// Returns the first 64 bits of the key in hexadecimal.
    pub(crate) fn short(self) -> String {
        format!("{:016x}", (self.0 >> 64) as u64)
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}
