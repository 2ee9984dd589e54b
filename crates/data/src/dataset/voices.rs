//! Who speaks which utterances, for references of a voice.

use std::collections::HashMap;

use plimsoll_core::{Frames, Key};

use crate::utterance::Utterance;

/// Who speaks which utterances.
pub(super) struct Voices {
    /// The utterances of each speaker.
    speakers: Vec<Vec<usize>>,
    /// The speaker of each utterance.
    by: Vec<usize>,
    /// The longest that a reference may be.
    pub(super) frames: Frames,
}

impl Voices {
    pub(super) fn new(utterances: &[Utterance], frames: Frames) -> Self {
        let mut named: HashMap<&str, usize> = HashMap::new();
        let mut speakers: Vec<Vec<usize>> = Vec::new();
        let mut by = Vec::with_capacity(utterances.len());
        for (index, utterance) in utterances.iter().enumerate() {
            let next = speakers.len();
            let speaker = utterance.speaker.as_deref().map_or(next, |name| *named.entry(name).or_insert(next));
            if speaker == next {
                speakers.push(Vec::new());
            }
            speakers[speaker].push(index);
            by.push(speaker);
        }
        Self { speakers, by, frames }
    }

    /// An utterance of the same speaker, another one where there is any.
    pub(super) fn other(&self, index: usize, key: Key) -> usize {
        let all = &self.speakers[self.by[index]];
        let place = all.binary_search(&index).expect("utterances are listed in order, each with its speaker");
        match all.len() {
            1 => index,
            // One of the others: whoever would be the utterance itself is the last instead.
            n => {
                let drawn = (key.unit() * (n - 1) as f64) as usize;
                all[if drawn == place { n - 1 } else { drawn }]
            }
        }
    }
}
