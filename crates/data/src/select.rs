//! Choosing the utterances that a run can use, and saying why the others cannot be.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_core::Seconds;

use crate::utterance::Utterance;
use plimsoll_text::{Case, normalise};

/// What an utterance must be to be used.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// The shortest that is kept.
    pub shortest: Seconds,
    /// The longest that is kept.
    pub longest: Seconds,
    /// How many frames a CTC loss sees of so much audio, after all subsampling; `None` where there is no such loss.
    ///
    /// It needs one frame for each character and one more between two that are equal (Graves et al. 2006).
    pub output_frames: Option<&'a dyn Fn(Seconds) -> u64>,
    /// The longest text that is kept, in characters.
    pub longest_text: Option<usize>,
}

impl Default for Limits<'_> {
    /// Anything that has a length.
    fn default() -> Self {
        Self {
            shortest: Seconds(f64::MIN_POSITIVE),
            longest: Seconds(f64::INFINITY),
            output_frames: None,
            longest_text: None,
        }
    }
}

/// Why an utterance cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its audio is shorter than the limit.
    TooShort(Seconds),
    /// Its audio is longer than the limit.
    TooLong(Seconds),
    /// Nothing is said in it.
    EmptyText,
    /// Its text is longer than the limit, with so many characters.
    LongText(usize),
    /// Its text is longer than a CTC loss can align with its audio.
    TooLittleAudio {
        /// Frames that the loss would see.
        frames: u64,
        /// Frames that the text needs.
        needed: u64,
    },
}

impl Reason {
    /// The kind of reason, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooShort(_) => "too short",
            Self::TooLong(_) => "too long",
            Self::EmptyText => "empty text",
            Self::LongText(_) => "too long a text",
            Self::TooLittleAudio { .. } => "too little audio for the text",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::TooShort(duration) | Self::TooLong(duration) => write!(f, "{kind}: it lasts {duration}"),
            Self::EmptyText => f.write_str(kind),
            Self::LongText(characters) => write!(f, "{kind}: it has {characters} characters"),
            Self::TooLittleAudio { frames, needed } => write!(f, "{kind}: {needed} frames needed, {frames} there"),
        }
    }
}

/// An utterance that is not used.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Its id.
    pub id: String,
    /// Why.
    pub reason: Reason,
}

/// A manifest, divided: every utterance is in one of the two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// What is used, in the order of the manifest.
    pub kept: Vec<Utterance>,
    /// What is not.
    pub refused: Vec<Refusal>,
}

impl Selection {
    /// How many were refused for each kind of reason.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for refusal in &self.refused {
            *counts.entry(refusal.reason.kind()).or_default() += 1;
        }
        counts
    }
}

pub(crate) fn refuse(utterance: &Utterance, limits: &Limits<'_>) -> Option<Reason> {
    let duration = utterance.duration;
    if duration < limits.shortest {
        return Some(Reason::TooShort(duration));
    }
    if duration > limits.longest {
        return Some(Reason::TooLong(duration));
    }
    let needed = frames_needed(&utterance.text);
    if needed == 0 {
        return Some(Reason::EmptyText);
    }
    let characters = utterance.text.chars().count();
    if limits.longest_text.is_some_and(|longest| characters > longest) {
        return Some(Reason::LongText(characters));
    }
    let frames = limits.output_frames?(duration);
    (frames < needed).then_some(Reason::TooLittleAudio { frames, needed })
}

fn frames_needed(text: &str) -> u64 {
    let letters: Vec<char> = normalise(text, Case::Keep).chars().collect();
    let repeats = letters.windows(2).filter(|pair| pair[0] == pair[1]).count();
    (letters.len() + repeats) as u64
}
