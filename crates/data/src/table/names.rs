//! Pairs of a speaker and a language, each kept once.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Number of a pair of speaker and language.
pub(crate) type Voice = u32;

/// Pairs of an optional speaker and an optional language, numbered in the order of their first use.
///
/// Each piece of a list makes such a table, so a pair costs no allocation of its own and one hash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    voices: Vec<Pair>,
    /// Speakers and languages, one after the other.
    text: String,
    /// Voices by their hash, plus one; 0 is free. The length is a power of two, and a quarter or more is free.
    slots: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    hash: u64,
    /// Position of the speaker in the text. The language follows.
    start: usize,
    speaker: Length,
    language: Length,
}

/// Length of a name in bytes; `NONE` without a name.
type Length = u32;
const NONE: Length = u32::MAX;

impl Names {
    /// Returns the number of a pair, and numbers it if it is new.
    pub(crate) fn voice(&mut self, speaker: Option<&str>, language: Option<&str>) -> Voice {
        self.voice_of_hash(hash(speaker, language), speaker, language)
    }

    /// Returns the number of each pair of `others`, and numbers those that are new.
    pub(crate) fn add_all(&mut self, others: &Self) -> Vec<Voice> {
        let pairs = others.voices.iter().zip(0..);
        pairs
            .map(|(pair, voice)| self.voice_of_hash(pair.hash, others.speaker(voice), others.language(voice)))
            .collect()
    }

    fn voice_of_hash(&mut self, hash: u64, speaker: Option<&str>, language: Option<&str>) -> Voice {
        if self.voices.len() >= self.slots.len() / 4 * 3 {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(voice) = self.slots[slot].checked_sub(1) {
            let is_same = self.voices[voice as usize].hash == hash;
            if is_same && self.speaker(voice) == speaker && self.language(voice) == language {
                return voice;
            }
            slot = (slot + 1) & mask;
        }
        let voice = self.voices.len() as Voice;
        self.slots[slot] = voice + 1;
        let start = self.text.len();
        self.text.extend([speaker, language].into_iter().flatten());
        let length = |name: Option<&str>| name.map_or(NONE, |name| name.len() as Length);
        self.voices.push(Pair { hash, start, speaker: length(speaker), language: length(language) });
        voice
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        self.slots.clear();
        self.slots.resize(size, 0);
        for (pair, number) in self.voices.iter().zip(1..) {
            let mut slot = pair.hash as usize & (size - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            self.slots[slot] = number;
        }
    }

    /// Returns the number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.voices.len()
    }

    pub(crate) fn speaker(&self, voice: Voice) -> Option<&str> {
        let pair = &self.voices[voice as usize];
        (pair.speaker != NONE).then(|| &self.text[pair.start..pair.start + pair.speaker as usize])
    }

    pub(crate) fn language(&self, voice: Voice) -> Option<&str> {
        let pair = &self.voices[voice as usize];
        let start = pair.start + if pair.speaker == NONE { 0 } else { pair.speaker as usize };
        (pair.language != NONE).then(|| &self.text[start..start + pair.language as usize])
    }
}

/// Computes the hash of a pair, with a key that is new in each process: no list can be made so that its names collide.
fn hash(speaker: Option<&str>, language: Option<&str>) -> u64 {
    static KEY: OnceLock<u64> = OnceLock::new();
    let key = *KEY.get_or_init(|| RandomState::new().hash_one(0));
    let add = |hash: u64, name: Option<&str>| match name {
        Some(name) => xxh3_64_with_seed(name.as_bytes(), hash),
        None => hash.wrapping_add(1),
    };
    add(add(key, speaker), language)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pairs_are_numbered_in_the_order_of_their_first_use(
            pairs in prop::collection::vec((prop::option::of("[ab]{0,3}"), prop::option::of("[ab]{0,2}")), 0..300),
            cut in any::<prop::sample::Index>(),
        ) {
            let (mut names, mut known) = (Names::default(), Vec::new());
            let mut second = Names::default();
            let cut = cut.index(pairs.len() + 1);
            for (place, (speaker, language)) in pairs.iter().enumerate() {
                let pair = (speaker.as_deref(), language.as_deref());
                if !known.contains(&pair) {
                    known.push(pair);
                }
                let names = if place < cut { &mut names } else { &mut second };
                names.voice(pair.0, pair.1);
            }
            // A table of the rest is added, as a piece of a list is.
            let voices = names.add_all(&second);
            let found: Vec<_> = (0..names.len() as Voice).map(|v| (names.speaker(v), names.language(v))).collect();
            prop_assert_eq!(found, known);
            for (voice, number) in voices.iter().zip(0..) {
                prop_assert_eq!(names.speaker(*voice), second.speaker(number));
            }
        }
    }
}
