//! Utterances of each speaker, from which voice references are drawn.

use std::collections::HashMap;

use plimsoll_core::{Frames, Key};

use crate::utterances::Utterances;

/// Utterances of each speaker. An utterance without a speaker counts as a speaker of its own.
pub(super) struct Voices {
    /// Indices of the utterances, speaker by speaker, those of one speaker in order.
    by_speaker: Vec<u32>,
    /// Where the utterances of each speaker begin, and behind the last speaker the number of utterances.
    starts: Vec<u32>,
    /// Index of the speaker of each utterance.
    speakers: Vec<u32>,
    /// Largest length of a voice reference.
    pub(super) frames: Frames,
}

impl Voices {
    pub(super) fn new(utterances: &Utterances, frames: Frames) -> Self {
        let names = utterances.voice_speakers();
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let (mut speakers, mut starts): (Vec<u32>, Vec<u32>) = (Vec::with_capacity(utterances.len()), Vec::new());
        for index in 0..utterances.len() {
            let next = starts.len() as u32;
            let speaker = names[utterances.voice(index)].map_or(next, |name| *numbers.entry(name).or_insert(next));
            if speaker == next {
                starts.push(0);
            }
            // Counts first, and becomes the start of the next speaker.
            starts[speaker as usize] += 1;
            speakers.push(speaker);
        }
        let mut end = 0;
        for start in &mut starts {
            let count = std::mem::replace(start, end);
            end += count;
        }
        let (mut by_speaker, mut next) = (vec![0; speakers.len()], starts.clone());
        for (index, &speaker) in (0..).zip(&speakers) {
            let place = &mut next[speaker as usize];
            by_speaker[*place as usize] = index;
            *place += 1;
        }
        starts.push(end);
        Self { by_speaker, starts, speakers, frames }
    }

    /// Returns the index of a random other utterance by the speaker of utterance `index`, or `index` itself if the
    /// speaker has no other utterance.
    pub(super) fn pick_other(&self, index: usize, key: Key) -> usize {
        let speaker = self.speakers[index] as usize;
        let all = &self.by_speaker[self.starts[speaker] as usize..self.starts[speaker + 1] as usize];
        let place = all.binary_search(&(index as u32)).expect("every utterance is in the sorted list of its speaker");
        match all.len() {
            1 => index,
            // Draws from all but the last, and replaces the utterance itself by the last.
            n => {
                let drawn = (key.unit() * (n - 1) as f64) as usize;
                all[if drawn == place { n - 1 } else { drawn }] as usize
            }
        }
    }
}
