//! Limits of a run, and the selection of utterances inside them.

use std::collections::BTreeMap;

use plimsoll_core::Seconds;

use crate::issue::{Issue, IssueKind};
use crate::utterance::Utterance;
use plimsoll_text::{Case, normalize};

/// Limits of one run on the durations and texts of utterances.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Shortest duration that is kept. Default: any duration above zero.
    pub shortest: Seconds,
    /// Longest duration that is kept. Default: no limit.
    pub longest: Seconds,
    /// Function that computes the frames that a CTC loss gets from audio of a given duration, after all subsampling;
    /// `None` without such a loss.
    ///
    /// CTC needs one frame for each character, and one more between two equal characters (Graves et al. 2006). An
    /// utterance with fewer frames has an infinite loss.
    pub output_frames: Option<&'a dyn Fn(Seconds) -> u64>,
    /// Longest text that is kept, in characters. Default: no limit.
    pub longest_text: Option<usize>,
}

impl Default for Limits<'_> {
    /// Keeps every utterance that has a duration and a text.
    fn default() -> Self {
        Self {
            shortest: Seconds(f64::MIN_POSITIVE),
            longest: Seconds(f64::INFINITY),
            output_frames: None,
            longest_text: None,
        }
    }
}

/// A manifest divided by limits: every utterance is kept or excluded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Utterances inside the limits, in the order of the manifest.
    pub kept: Vec<Utterance>,
    /// One issue for each utterance outside the limits, in the order of the manifest.
    pub excluded: Vec<Issue>,
}

impl Selection {
    /// Counts the excluded utterances for each [kind](IssueKind::name) of issue.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        count_by_name(&self.excluded)
    }
}

/// Counts the issues of each kind.
pub(crate) fn count_by_name(issues: &[Issue]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for issue in issues {
        *counts.entry(issue.kind.name()).or_default() += 1;
    }
    counts
}

/// Returns an issue for the first limit that `utterance` breaks; `None` if it is inside all limits.
pub(crate) fn broken_limit(utterance: &Utterance, limits: &Limits<'_>) -> Option<IssueKind> {
    let duration = utterance.duration;
    if duration < limits.shortest {
        return Some(IssueKind::TooShort(duration));
    }
    if duration > limits.longest {
        return Some(IssueKind::TooLong(duration));
    }
    let needed = ctc_frames(&utterance.text);
    if needed == 0 {
        return Some(IssueKind::EmptyText);
    }
    let characters = utterance.text.chars().count();
    if limits.longest_text.is_some_and(|longest| characters > longest) {
        return Some(IssueKind::TextTooLong(characters));
    }
    let frames = limits.output_frames?(duration);
    (frames < needed).then_some(IssueKind::TooLittleAudio { frames, needed })
}

/// Computes the frames that a CTC loss needs for `text`: one for each character and one between equal neighbors.
fn ctc_frames(text: &str) -> u64 {
    let characters: Vec<char> = normalize(text, Case::Keep).chars().collect();
    let repeats = characters.windows(2).filter(|pair| pair[0] == pair[1]).count();
    (characters.len() + repeats) as u64
}
