//! Division of a transcript into subtitles.

use super::span::Milliseconds;
use super::{Segment, Transcript, Word};

/// Longest line, in characters.
pub(super) const LINE_CHARACTERS: usize = 42;
/// Longest time that a subtitle is shown.
const MOST_MILLISECONDS: u64 = 7000;
/// A shorter subtitle is shown longer, until the next one of its segment begins.
const LEAST_MILLISECONDS: u64 = 1000;
/// Pause between two words after which a new subtitle begins.
const PAUSE_MILLISECONDS: u64 = 600;

/// One subtitle.
pub(super) struct Cue {
    pub(super) span: Milliseconds,
    /// End of the last word.
    spoken: u64,
    pub(super) speaker: Option<String>,
    /// One or two lines.
    pub(super) lines: Vec<String>,
}

/// A word or a part of a long word.
struct Piece {
    text: String,
    span: Milliseconds,
}

/// Divides a transcript into subtitles, in order of their starts. A short subtitle is not shown beyond the recording, nor while
/// the next one is.
pub(super) fn cues(transcript: &Transcript) -> Vec<Cue> {
    let mut cues: Vec<Cue> = transcript.segments.iter().flat_map(segment_cues).collect();
    cues.sort_by_key(|cue| cue.span);
    limit(&mut cues, None, transcript.seconds);
    cues
}

/// Ends each of `cues` before the one after it, the last one before `next`, and all with a recording of `seconds`.
fn limit(cues: &mut [Cue], next: Option<u64>, seconds: f64) {
    let starts: Vec<u64> = cues.iter().map(|cue| cue.span.start).chain(next).collect();
    let all = if seconds > 0.0 { (seconds * 1000.0) as u64 } else { u64::MAX };
    for (place, cue) in cues.iter_mut().enumerate() {
        let limit = starts.get(place + 1).copied().unwrap_or(u64::MAX).min(all);
        cue.span.end = cue.span.end.min(limit.max(cue.spoken));
    }
}

/// Divides a recording of `seconds` into subtitles, segment by segment. The segments come in order.
#[derive(Default)]
pub(super) struct CueStream {
    seconds: f64,
    /// The last subtitle, whose end the next segment can limit.
    held: Option<Cue>,
}

impl CueStream {
    pub(super) fn new(seconds: f64) -> Self {
        Self { seconds, held: None }
    }

    /// Returns the subtitles that are finished with `segment`.
    pub(super) fn push(&mut self, segment: &Segment) -> Vec<Cue> {
        let mut cues: Vec<Cue> = self.held.take().into_iter().chain(segment_cues(segment)).collect();
        cues.sort_by_key(|cue| cue.span);
        self.held = cues.pop();
        limit(&mut cues, self.held.as_ref().map(|cue| cue.span.start), self.seconds);
        cues
    }

    /// Returns the last subtitle.
    pub(super) fn finish(&mut self) -> Option<Cue> {
        let mut last = self.held.take();
        limit(last.as_mut_slice(), None, self.seconds);
        last
    }
}

fn segment_cues(segment: &Segment) -> Vec<Cue> {
    let pieces: Vec<Piece> = segment.timed_words().iter().flat_map(pieces).collect();
    let mut groups: Vec<Vec<Piece>> = Vec::new();
    for piece in pieces {
        match groups.last_mut() {
            Some(group) if continues(group, &piece) => group.push(piece),
            _ => groups.push(vec![piece]),
        }
    }
    let starts: Vec<u64> = groups.iter().map(|group| group[0].span.start).collect();
    let cue = |(place, group): (usize, Vec<Piece>)| {
        let next = starts.get(place + 1).copied().unwrap_or(u64::MAX);
        let start = starts[place];
        let spoken = group.last().map_or(start + 1, |piece| piece.span.end);
        let end = spoken.max((start + LEAST_MILLISECONDS).min(next)).min(start + MOST_MILLISECONDS);
        let texts: Vec<&str> = group.iter().map(|piece| piece.text.as_str()).collect();
        let lines = lines(&texts).unwrap_or_else(|| vec![texts.join(" ")]);
        Cue { span: Milliseconds { start, end }, spoken: spoken.min(end), speaker: segment.speaker.clone(), lines }
    };
    groups.into_iter().enumerate().map(cue).collect()
}

/// Returns whether `piece` can be added to a subtitle.
fn continues(group: &[Piece], piece: &Piece) -> bool {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return true };
    let texts: Vec<&str> = group.iter().chain([piece]).map(|piece| piece.text.as_str()).collect();
    piece.span.start < last.span.end + PAUSE_MILLISECONDS
        && piece.span.end <= first.span.start + MOST_MILLISECONDS
        && !ends_sentence(&last.text)
        && lines(&texts).is_some()
}

/// Returns whether a word ends a sentence, in any of the common scripts.
fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches(['"', '\'', '”', '’', '»', ')', ']']);
    word.ends_with(['.', '!', '?', '…', '।', '。', '！', '？', '؟', '۔'])
}

/// Divides words into one or two lines, the two as equal as possible; `None` if they do not fit.
fn lines(words: &[&str]) -> Option<Vec<String>> {
    let lengths: Vec<usize> = words.iter().map(|word| word.chars().count()).collect();
    let length = |words: &[usize]| words.iter().sum::<usize>() + words.len().saturating_sub(1);
    if length(&lengths) <= LINE_CHARACTERS {
        return Some(vec![words.join(" ")]);
    }
    if length(&lengths) > 2 * LINE_CHARACTERS + 1 {
        return None;
    }
    let sides = |cut: &usize| (length(&lengths[..*cut]), length(&lengths[*cut..]));
    let fits = |cut: &usize| sides(cut).0.max(sides(cut).1) <= LINE_CHARACTERS;
    let cut = (1..words.len()).filter(fits).min_by_key(|cut| sides(cut).0.abs_diff(sides(cut).1))?;
    Some(vec![words[..cut].join(" "), words[cut..].join(" ")])
}

/// Divides a word that is longer than a line.
fn pieces(word: &Word) -> Vec<Piece> {
    let characters: Vec<char> = word.text.chars().collect();
    let span = Milliseconds::new(word.start, word.end);
    let chunks: Vec<&[char]> = characters.chunks(LINE_CHARACTERS).collect();
    let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.len()).collect();
    span.shares(&lengths).zip(chunks).map(|(span, chunk)| Piece { text: chunk.iter().collect(), span }).collect()
}
