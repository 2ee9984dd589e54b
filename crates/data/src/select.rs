//! Limits of a run, and the selection of utterances inside them.

use std::collections::BTreeMap;

use plimsoll_core::Seconds;

use crate::issue::{Issue, IssueKind};
use crate::utterance::Utterance;
use plimsoll_text::{Case, Tokenizer, normalize};

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
    /// CTC needs one frame for each token, and one more between two equal tokens (Graves et al. 2006). An utterance
    /// with fewer frames has an infinite loss.
    pub output_frames: Option<&'a dyn Fn(Seconds) -> u64>,
    /// Tokenizer that makes the tokens of which `output_frames` needs enough frames. Default: a token for each
    /// character.
    pub tokenizer: Option<&'a Tokenizer>,
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
            tokenizer: None,
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
    /// Divides `utterances` by `limits`, and logs a warning for each excluded utterance.
    pub fn new(utterances: Vec<Utterance>, limits: &Limits<'_>) -> Self {
        let mut selection = Self::default();
        for utterance in utterances {
            match broken_limit(&utterance, limits) {
                None => selection.kept.push(utterance),
                Some(reason) => {
                    tracing::warn!(utterance = utterance.id, %reason, "utterance not used");
                    selection.excluded.push(Issue::for_utterance(&utterance.id, reason));
                }
            }
        }
        selection
    }

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
    if normalize(&utterance.text, Case::Keep).is_empty() {
        return Some(IssueKind::EmptyText);
    }
    let characters = utterance.text.chars().count();
    if limits.longest_text.is_some_and(|longest| characters > longest) {
        return Some(IssueKind::TextTooLong(characters));
    }
    let frames = limits.output_frames?(duration);
    let needed = ctc_frames(&utterance.text, limits.tokenizer);
    (frames < needed).then_some(IssueKind::TooLittleAudio { frames, needed })
}

/// Computes the frames that a CTC loss needs for `text`: one for each token and one between equal neighbors. Without a
/// tokenizer, each character is a token.
fn ctc_frames(text: &str, tokenizer: Option<&Tokenizer>) -> u64 {
    let tokens: Vec<u32> = match tokenizer {
        Some(tokenizer) => tokenizer.encode_lossy(text).0,
        None => normalize(text, Case::Keep).chars().map(u32::from).collect(),
    };
    let repeats = tokens.windows(2).filter(|pair| pair[0] == pair[1]).count();
    (tokens.len() + repeats) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn utterance(seconds: f64, text: &str) -> Utterance {
        Utterance {
            id: "x".into(),
            audio: "x.wav".into(),
            offset: Seconds(0.0),
            duration: Seconds(seconds),
            text: text.into(),
            speaker: None,
            language: None,
        }
    }

    proptest! {
        #[test]
        fn feasibility_follows_the_tokens_of_the_tokenizer(
            texts in prop::collection::vec("[a-d]{1,6}( [a-d]{1,6}){0,5}", 1..8), size in 9usize..60, frames in 0u64..40,
        ) {
            let tokenizer = Tokenizer::bpe(&texts, size).unwrap();
            let output_frames = |_: Seconds| frames;
            let limits = Limits { output_frames: Some(&output_frames), tokenizer: Some(&tokenizer), ..Limits::default() };
            for text in &texts {
                let tokens = tokenizer.encode(text).unwrap();
                let repeats = tokens.windows(2).filter(|pair| pair[0] == pair[1]).count();
                let is_feasible = frames >= (tokens.len() + repeats) as u64;
                let broken = broken_limit(&utterance(1.0, text), &limits);
                prop_assert_eq!(broken.is_none(), is_feasible, "{} in {} frames: {:?}", text, frames, broken);
                let without_ctc = Limits { output_frames: None, ..limits };
                prop_assert_eq!(broken_limit(&utterance(1.0, text), &without_ctc), None);
            }
        }
    }

    #[test]
    fn word_pieces_need_fewer_frames_than_characters() {
        let text = "hello hello hello hello";
        let tokenizer = Tokenizer::bpe([text], 30).unwrap();
        // Eight times subsampled: 12.5 frames a second.
        let output_frames = |length: Seconds| (length.0 * 12.5) as u64;
        let limits = Limits { output_frames: Some(&output_frames), ..Limits::default() };
        let utterance = utterance(1.0, text);
        let needed = |limits: &Limits<'_>| broken_limit(&utterance, limits);
        assert_eq!(needed(&limits), Some(IssueKind::TooLittleAudio { frames: 12, needed: 27 }));
        assert_eq!(needed(&Limits { tokenizer: Some(&tokenizer), ..limits }), None);
    }
}
