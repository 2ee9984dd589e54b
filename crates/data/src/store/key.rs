//! Keys of records.

use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

/// Key of a record: a 128-bit hash of everything that its values depend on.
///
/// The chance of a collision is 1 in 10²⁰ for a store of a thousand million records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreKey(u128);

/// Builder of the key of many parts.
#[derive(Default)]
pub(crate) struct KeyBuilder {
    /// Bytes that are not hashed yet. A hash of a few bytes at a time takes several times as long.
    pending: Vec<u8>,
    hash: Option<Box<Xxh3Default>>,
}

/// Number of bytes from which on they are hashed.
const PENDING_BYTES: usize = 1 << 16;

impl KeyBuilder {
    pub(crate) fn add(&mut self, part: &[u8]) {
        write_key_part(&mut self.pending, part);
        if self.pending.len() >= PENDING_BYTES {
            self.hash.get_or_insert_default().update(&self.pending);
            self.pending.clear();
        }
    }

    pub(crate) fn finish(mut self) -> StoreKey {
        match &mut self.hash {
            None => StoreKey::from_written(&self.pending),
            Some(hash) => {
                hash.update(&self.pending);
                StoreKey(hash.digest128())
            }
        }
    }
}

/// Appends a part of a key to bytes for [`StoreKey::from_written`].
pub(crate) fn write_key_part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
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

    /// Computes the key of parts that [`write_key_part`] has written.
    pub(crate) fn from_written(bytes: &[u8]) -> Self {
        Self(xxh3_128(bytes))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keys_are_those_of_all_parts_hashed_one_by_one(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..9), repeat in 1usize..40_000,
        ) {
            let (mut key, mut hash) = (KeyBuilder::default(), Xxh3Default::new());
            for part in parts.iter().cycle().take(parts.len() + if parts.len() == 1 { repeat } else { 0 }) {
                key.add(part);
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
            prop_assert_eq!(key.finish(), StoreKey(hash.digest128()));
        }
    }
}
