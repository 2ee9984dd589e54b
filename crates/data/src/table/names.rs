//! Names of speakers and languages, each kept once.

use std::collections::HashMap;
use std::sync::Arc;

/// Number of a pair of speaker and language.
pub(crate) type Voice = u32;

/// Pairs of an optional speaker and an optional language, numbered in the order of their first use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    numbers: HashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    pairs: HashMap<(Option<u32>, Option<u32>), Voice>,
    voices: Vec<(Option<u32>, Option<u32>)>,
}

impl Names {
    /// Returns the number of a pair, and numbers it if it is new.
    pub(crate) fn voice(&mut self, speaker: Option<&str>, language: Option<&str>) -> Voice {
        let mut number = |name: &str| match self.numbers.get(name) {
            Some(&number) => number,
            None => {
                let (number, name) = (self.names.len() as u32, Arc::<str>::from(name));
                self.numbers.insert(name.clone(), number);
                self.names.push(name);
                number
            }
        };
        let pair = (speaker.map(&mut number), language.map(&mut number));
        let next = self.voices.len() as Voice;
        *self.pairs.entry(pair).or_insert_with(|| {
            self.voices.push(pair);
            next
        })
    }

    /// Returns the number of pairs.
    pub(crate) fn len(&self) -> usize {
        self.voices.len()
    }

    pub(crate) fn speaker(&self, voice: Voice) -> Option<&str> {
        self.voices[voice as usize].0.map(|name| &*self.names[name as usize])
    }

    pub(crate) fn language(&self, voice: Voice) -> Option<&str> {
        self.voices[voice as usize].1.map(|name| &*self.names[name as usize])
    }
}
