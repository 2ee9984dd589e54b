//! Keyed randomness: each random number is a function of a key, so retries and resumed runs draw the same numbers.

use serde::{Deserialize, Serialize};

/// Identifier of a sample in keys and records: a hash of its name in the manifest, equal on all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SampleId(pub u64);

impl SampleId {
    /// Computes the id of the sample named `name` in the manifest: FNV-1a, then the SplitMix64 finalizer.
    pub fn from_name(name: &str) -> Self {
        let fnv = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Self(mix(fnv))
    }
}

/// Node in the tree of a run's random numbers; the root is the seed.
///
/// [`with`](Self::with) and [`at`](Self::at) lead to child nodes. The same path gives the same numbers on all machines
/// and in any order of calls; different paths give unrelated numbers. Not suitable for cryptography.
///
/// ```
/// use plimsoll_core::Key;
/// let step = Key::new(7).with("dropout").at(1200);
/// assert_eq!(step, Key::new(7).with("dropout").at(1200));
/// assert_ne!(step, Key::new(7).with("dropout").at(1201));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(u64);

impl Key {
    /// Creates the root of the tree for a seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x706c_696d_736f_6c6c))
    }

    /// Returns the child node with the name `name`.
    #[must_use]
    pub fn with(self, name: &str) -> Self {
        self.at(SampleId::from_name(name).0)
    }

    /// Returns the child node with the index `index`.
    #[must_use]
    pub fn at(self, index: u64) -> Self {
        Self(mix(self.0.rotate_left(17) ^ mix(index)))
    }

    /// Returns the 64 random bits of this node.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the random number of this node, uniform in `[0, 1)`.
    pub fn unit(self) -> f64 {
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns the random integer of this node, uniform in `0..bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be above zero");
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }

    /// Shuffles `items` with the random numbers of this node (Fisher-Yates).
    pub fn shuffle<T>(self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.at(last as u64).below(last as u64 + 1) as usize);
        }
    }
}

/// Mixes the bits of a value: finalizer of SplitMix64 (Steele, Lea, Flood 2014), with an offset so that zero does not
/// map to zero.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_uniform_and_uncorrelated() {
        let root = Key::new(1);
        let n = 20_000;
        let mean = (0..n).map(|i| root.at(i).unit()).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let product = (0..n).map(|i| (root.at(i).unit() - 0.5) * (root.at(i + 1).unit() - 0.5)).sum::<f64>();
        assert!((product / n as f64).abs() < 0.002, "{product}");
    }

    #[test]
    fn shuffle_keeps_all_items() {
        let mut items: Vec<u32> = (0..100).collect();
        Key::new(3).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
