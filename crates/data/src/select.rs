//! Limits of a run, and the selection of utterances inside them.

use std::collections::BTreeMap;

use plimsoll_core::Seconds;

use crate::dropped::Dropped;
use crate::issue::{Issue, IssueKind};
use crate::utterances::Utterances;
use plimsoll_text::{Case, Tokenizer, normalized};
use rayon::prelude::*;

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
    pub kept: Utterances,
    /// One issue for each utterance outside the limits, in the order of the manifest.
    pub excluded: Vec<Issue>,
}

impl Selection {
    /// Divides `utterances` by `limits`, and logs a warning for each excluded utterance.
    pub fn new(utterances: impl Into<Utterances>, limits: &Limits<'_>) -> Self {
        let utterances = utterances.into();
        let (mut excluded, mut faulty) = (Vec::new(), Vec::new());
        let content = |index| (utterances.text(index), utterances.duration(index));
        judge(utterances.len(), content, limits, &mut |index, reason| {
            let Some(reason) = reason else { return };
            let id = utterances.get(index).id;
            tracing::warn!(utterance = id, %reason, "utterance not used");
            excluded.push(Issue::for_utterance(id, reason));
            faulty.push(index);
        });
        if faulty.is_empty() {
            return Self { kept: utterances, excluded };
        }
        let mut faulty = faulty.into_iter().peekable();
        let kept = utterances.filter(|index| faulty.next_if_eq(index).is_none());
        Self { kept, excluded }
    }

    /// Returns all reasons why utterances are excluded, with their counts.
    pub fn dropped(&self) -> Dropped {
        Dropped::new(self.kept.len(), &self.excluded, 0)
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
        *counts.entry(issue.kind.name()).or_default() += issue.kind.utterances();
    }
    counts
}

/// Number of texts that are measured at a time.
const AT_ONCE: usize = 1 << 14;

/// Judges utterances by `limits`, and calls `each` with the first limit that each breaks, in order. `content` gives a text
/// and its duration. Texts are measured on all threads.
pub(crate) fn judge<'a>(
    count: usize,
    content: impl Fn(usize) -> (&'a str, Seconds) + Sync,
    limits: &Limits<'_>,
    each: &mut dyn FnMut(usize, Option<IssueKind>),
) {
    let (needs_frames, tokenizer) = (limits.output_frames.is_some(), limits.tokenizer);
    let needs_length = limits.longest_text.is_some();
    let measure = |index| Measured::new(content(index), needs_length, needs_frames, tokenizer);
    let mut measured = Vec::new();
    for first in (0..count).step_by(AT_ONCE) {
        (first..(first + AT_ONCE).min(count)).into_par_iter().map(measure).collect_into_vec(&mut measured);
        for (index, measured) in (first..).zip(&measured) {
            each(index, measured.broken_limit(limits));
        }
    }
}

/// Returns an issue for the first limit that an utterance breaks; `None` if it is inside all limits.
pub(crate) fn broken_limit(text: &str, duration: Seconds, limits: &Limits<'_>) -> Option<IssueKind> {
    Measured::new((text, duration), true, limits.output_frames.is_some(), limits.tokenizer).broken_limit(limits)
}

/// What limits need to know about an utterance.
struct Measured {
    duration: Seconds,
    is_empty: bool,
    /// Length of the text in characters, if there is a limit of it.
    characters: usize,
    /// Frames that a CTC loss needs, if there is one.
    frames: u64,
}

impl Measured {
    fn new(
        (text, duration): (&str, Seconds),
        needs_length: bool,
        needs_frames: bool,
        tokenizer: Option<&Tokenizer>,
    ) -> Self {
        let characters = if needs_length { text.chars().count() } else { 0 };
        let frames = if needs_frames { ctc_frames(text, tokenizer) } else { 0 };
        // Normalization keeps something of a text that has more than white space.
        Self { duration, is_empty: text.trim().is_empty(), characters, frames }
    }

    fn broken_limit(&self, limits: &Limits<'_>) -> Option<IssueKind> {
        let &Self { duration, is_empty, characters, frames: needed } = self;
        if duration < limits.shortest {
            return Some(IssueKind::TooShort(duration));
        }
        if duration > limits.longest {
            return Some(IssueKind::TooLong(duration));
        }
        if is_empty {
            return Some(IssueKind::EmptyText);
        }
        if limits.longest_text.is_some_and(|longest| characters > longest) {
            return Some(IssueKind::TextTooLong(characters));
        }
        let frames = limits.output_frames?(duration);
        (frames < needed).then_some(IssueKind::TooLittleAudio { frames, needed })
    }
}

/// Computes the frames that a CTC loss needs for `text`: one for each token and one between equal neighbors. Without a
/// tokenizer, each character is a token.
fn ctc_frames(text: &str, tokenizer: Option<&Tokenizer>) -> u64 {
    match tokenizer {
        Some(tokenizer) => with_gaps(tokenizer.encode_lossy(text).0.into_iter()),
        None => {
            let text = normalized(text, Case::Keep);
            if text.is_ascii() {
                let bytes = text.as_bytes();
                let repeats = bytes.iter().zip(bytes.get(1..).unwrap_or_default()).filter(|(a, b)| a == b).count();
                return (bytes.len() + repeats) as u64;
            }
            with_gaps(text.chars())
        }
    }
}

/// Counts tokens, and once more each that equals the one before it.
fn with_gaps<T: PartialEq>(tokens: impl Iterator<Item = T>) -> u64 {
    let (mut count, mut last) = (0, None);
    for token in tokens {
        count += 1 + u64::from(last.as_ref() == Some(&token));
        last = Some(token);
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
                let broken = broken_limit(text, Seconds(1.0), &limits);
                prop_assert_eq!(broken.is_none(), is_feasible, "{} in {} frames: {:?}", text, frames, broken);
                let without_ctc = Limits { output_frames: None, ..limits };
                prop_assert_eq!(broken_limit(text, Seconds(1.0), &without_ctc), None);
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
        let needed = |limits: &Limits<'_>| broken_limit(text, Seconds(1.0), limits);
        assert_eq!(needed(&limits), Some(IssueKind::TooLittleAudio { frames: 12, needed: 27 }));
        assert_eq!(needed(&Limits { tokenizer: Some(&tokenizer), ..limits }), None);
    }
}
