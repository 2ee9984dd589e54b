//! What a record is found by.

use xxhash_rust::xxh3::Xxh3Default;

/// What a record is found by: 128 bits made of everything its values depend on.
///
/// Two different things have the same key by accident once in 10²⁰ stores of a thousand million records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreKey(u128);

impl StoreKey {
    /// The key of a list of parts, such as a sound's content and the parameters of its features.
    ///
    /// Where one part ends and the next begins matters: `["ab", "c"]` and `["a", "bc"]` have different keys.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Xxh3Default::new();
        for part in parts {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.digest128())
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }
}
