//! Utterances of each speaker, from which voice references are drawn.

use std::collections::HashMap;

use plimsoll_core::{Frames, Key};

use crate::utterance::Utterance;

/// Utterances of each speaker. An utterance without a speaker counts as a speaker of its own.
pub(super) struct Voices {
    /// Indices of the utterances of each speaker, in order.
    speakers: Vec<Vec<usize>>,
    /// Index of the speaker of each utterance.
    by: Vec<usize>,
    /// Largest length of a voice reference.
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

    /// Returns the index of a random other utterance by the speaker of utterance `index`, or `index` itself if the
    /// speaker has no other utterance.
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
