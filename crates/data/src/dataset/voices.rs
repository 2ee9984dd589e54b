//! The utterances of each speaker, from which voice references are drawn.

use std::collections::HashMap;

use plimsoll_core::{Frames, Key};

use crate::utterance::Utterance;

/// The utterances of each speaker. An utterance without a speaker has one of its own.
pub(super) struct Voices {
    /// The indices of the utterances of each speaker, in order.
    speakers: Vec<Vec<usize>>,
    /// The index of the speaker of each utterance.
    by: Vec<usize>,
    /// Longest reference.
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

    /// A random other utterance of the same speaker; `index` itself where there is none.
    pub(super) fn pick_other(&self, index: usize, key: Key) -> usize {
        let all = &self.speakers[self.by[index]];
        let place = all.binary_search(&index).expect("every utterance is in the sorted list of its speaker");
        match all.len() {
            1 => index,
            // Draws from all but the last, and replaces the utterance itself by the last.
            n => {
                let drawn = (key.unit() * (n - 1) as f64) as usize;
                all[if drawn == place { n - 1 } else { drawn }]
            }
        }
    }
}
