//! Frames of a recording that were computed in pieces, and whose text is not searched yet.

use std::cmp::Reverse;
use std::iter;
use std::ops::Range;

use burn::tensor::Tensor;
use plimsoll_core::Seconds;
use plimsoll_layers::Lengths;

use super::decode::CtcScores;
use super::windows::{Window, WindowSizes, Windows, is_speech};
use super::{EncodedAudio, Transcriber};

/// Pause that ends a segment of a long recording, and a piece of it: a time in which the recognizer hears nothing.
pub const SEGMENT_PAUSE: Seconds = Seconds(0.6);
/// Least pause in which a part ends that has none of the length [`SEGMENT_PAUSE`]. Inside of a word a recognizer hears a token more
/// often.
const PAUSE: Seconds = Seconds(0.3);
/// Shortest piece: features that are normalized over less say little.
const PIECE: Seconds = Seconds(1.0);
/// Sound before and after the tokens of a piece that is computed with it. The rest of a long pause would be normalized with
/// the speech.
const MARGIN: Seconds = Seconds(0.4);

/// Lengths of pauses and pieces in frames.
#[derive(Clone, Copy)]
struct PauseLengths {
    /// Least pause that ends a part.
    pause: usize,
    /// Least pause that ends an utterance.
    utterance: usize,
    /// Shortest piece.
    piece: usize,
    /// Margin of the tokens of a piece.
    margin: usize,
}

impl PauseLengths {
    fn new(transcriber: &Transcriber) -> Self {
        let frames = |length: Seconds| ((length.0 / transcriber.frame_length().0).ceil() as usize).max(1);
        Self { pause: frames(PAUSE), utterance: frames(SEGMENT_PAUSE), piece: frames(PIECE), margin: frames(MARGIN) }
    }
}

/// Frames whose text is not searched yet.
pub(super) struct PendingFrames {
    /// Number of the first frame in the recording.
    first: usize,
    /// Number of windows that were computed.
    parts: usize,
    log_probs: Vec<f32>,
    vocabulary: usize,
    lengths: PauseLengths,
    /// Output of the encoder `[1, frames, model width]`, if a decoder reads it.
    encoded: Option<Vec<Tensor<3>>>,
}

impl PendingFrames {
    /// Begins a recording; with `is_encoded` the output of the encoder is kept, too.
    pub(super) fn new(transcriber: &Transcriber, is_encoded: bool) -> Self {
        let (vocabulary, lengths) = (transcriber.vocabulary(), PauseLengths::new(transcriber));
        let encoded = is_encoded.then(Vec::new);
        Self { first: 0, parts: 0, log_probs: Vec::new(), vocabulary, lengths, encoded }
    }

    /// Takes samples, and computes the frames of all windows that are full.
    pub(super) fn push(&mut self, samples: &[f32], windows: &mut Windows, transcriber: &Transcriber) {
        windows.push(samples);
        while let Some(window) = windows.full() {
            self.parts += 1;
            let (encoded, scores) = self.scores(window.samples, true, transcriber);
            let cuts = self.cuts(&scores, &window, windows.sizes());
            match cuts.last() {
                Some(&end) => {
                    self.pieces(&window, &scores, &cuts, transcriber);
                    windows.advance(end, false);
                }
                None => {
                    let (skipped, end) = (window.skipped, windows.quietest());
                    self.keep(encoded, &scores, skipped, end - skipped);
                    windows.advance(end, true);
                }
            }
        }
    }

    /// Computes the frames of the last window.
    pub(super) fn finish(&mut self, windows: &Windows, transcriber: &Transcriber) {
        let window = windows.last();
        if window.samples.is_empty() {
            return;
        }
        self.parts += 1;
        let is_part = !self.is_one_part();
        let (encoded, scores) = self.scores(window.samples, is_part, transcriber);
        let mut cuts = if is_part { self.cuts(&scores, &window, windows.sizes()) } else { Vec::new() };
        if cuts.is_empty() {
            return self.keep(encoded, &scores, window.skipped, usize::MAX);
        }
        // The last piece ends with the recording.
        cuts.push(scores.frames());
        self.pieces(&window, &scores, &cuts, transcriber);
    }

    /// Computes the frames of samples. Where nothing is said in a part of a long recording, they are those of a pause: features
    /// that are normalized over the part would make its noise as loud as speech.
    fn scores(&self, samples: &[f32], is_part: bool, transcriber: &Transcriber) -> (Option<EncodedAudio>, CtcScores) {
        if is_part && self.encoded.is_none() && !is_speech(samples, transcriber.sample_rate()) {
            return (None, CtcScores::silence(samples.len() / transcriber.frame_samples(), self.vocabulary));
        }
        let (encoded, scores) = transcriber.score(samples);
        (Some(encoded), scores)
    }

    /// Finds the frames in which the pieces of a window end: in all pauses that end an utterance, or without one in the longest
    /// pause, of those that are not near the start. None without a pause, and in a last window that ends soon.
    fn cuts(&self, scores: &CtcScores, window: &Window<'_>, sizes: WindowSizes) -> Vec<usize> {
        let is_blank = |frame| is_blank(scores.row(frame));
        let PauseLengths { pause, utterance, piece, .. } = self.lengths;
        let (first, all) = (window.skipped, scores.frames());
        let (mut cuts, mut start) = (Vec::new(), first);
        for pause in runs(first..all, is_blank).filter(|pause| pause.len() >= utterance) {
            // The end of a recording ends its last piece.
            if window.has_more || pause.end < all {
                let cut = window.quietest(pause, sizes);
                if cut >= start + piece {
                    cuts.push(cut);
                    start = cut;
                }
            }
        }
        if cuts.is_empty() && window.has_more {
            let late = runs(first + (all - first) / 4..all, is_blank).filter(|found| found.len() >= pause);
            let longest = late.max_by_key(|pause| (pause.len(), Reverse(pause.start)));
            cuts.extend(longest.map(|pause| window.quietest(pause, sizes)).filter(|&cut| cut > first));
        }
        cuts
    }

    /// Computes the pieces of a window that end in `cuts`, each alone, as an utterance that somebody has cut out.
    fn pieces(&mut self, window: &Window<'_>, scores: &CtcScores, cuts: &[usize], transcriber: &Transcriber) {
        let mut first = window.skipped;
        for &end in cuts {
            let Some(sound) = self.sound(scores, first..end) else {
                self.add_silence(end - first);
                first = end;
                continue;
            };
            // The first piece hears the context that the window before has left.
            let has_context = first == window.skipped && first > 0;
            let sound = if has_context { first..sound.end } else { sound };
            let from = if has_context { 0 } else { sound.start };
            // An encoder has one or two frames less than it has samples for.
            let frame = transcriber.frame_samples();
            let until = ((sound.end + 2) * frame).min(window.samples.len());
            let (encoded, piece) = self.scores(&window.samples[from * frame..until], true, transcriber);
            self.add_silence(sound.start - first);
            self.keep(encoded, &piece, sound.start - from, sound.len());
            self.add_silence(end - sound.end);
            first = end;
        }
    }

    /// Returns the frames of a piece that are computed: its tokens by `scores`, with a margin. None if it has no token. All,
    /// if a decoder reads them.
    fn sound(&self, scores: &CtcScores, frames: Range<usize>) -> Option<Range<usize>> {
        if self.encoded.is_some() {
            return Some(frames);
        }
        let is_token = |&frame: &usize| !is_blank(scores.row(frame));
        let (start, last) = (frames.clone().find(is_token)?, frames.clone().rev().find(is_token)?);
        let margin = self.lengths.margin;
        Some(start.saturating_sub(margin).max(frames.start)..(last + 1 + margin).min(frames.end))
    }

    /// Keeps the frames of a core: `most` after the first `skipped`, or all that there are.
    fn keep(&mut self, encoded: Option<EncodedAudio>, scores: &CtcScores, skipped: usize, most: usize) {
        let count = scores.frames().saturating_sub(skipped).min(most);
        let missing = if most == usize::MAX { 0 } else { most - count };
        if count > 0 {
            let from = skipped * self.vocabulary;
            self.log_probs.extend_from_slice(&scores.log_probs()[from..from + count * self.vocabulary]);
            if let (Some(all), Some(encoded)) = (&mut self.encoded, encoded) {
                all.push(encoded.frames.clone().narrow(1, skipped, count));
                let last = encoded.frames.narrow(1, skipped + count - 1, 1);
                all.extend(iter::repeat_n(last, missing));
            }
        }
        self.add_silence(missing);
    }

    /// Adds the scores of frames in which nothing is said.
    fn add_silence(&mut self, frames: usize) {
        self.log_probs.extend_from_slice(CtcScores::silence(frames, self.vocabulary).log_probs());
    }

    /// Returns the number of frames.
    pub(super) fn count(&self) -> usize {
        self.log_probs.len() / self.vocabulary
    }

    /// Returns the number of the first frame in the recording.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// Returns whether the frames are all of a recording that was computed at once.
    pub(super) fn is_one_part(&self) -> bool {
        self.first == 0 && self.parts == 1
    }

    fn row(&self, frame: usize) -> &[f32] {
        &self.log_probs[frame * self.vocabulary..][..self.vocabulary]
    }

    fn is_blank(&self, frame: usize) -> bool {
        is_blank(self.row(frame))
    }

    /// Finds the middle of the first pause between utterances that something is said before and after.
    pub(super) fn first_pause(&self) -> Option<usize> {
        let begin = (0..self.count()).find(|&frame| !self.is_blank(frame))?;
        let mut pauses = runs(begin..self.count(), |frame| self.is_blank(frame));
        let pause = pauses.find(|pause| pause.len() > self.lengths.utterance && pause.end < self.count())?;
        Some(pause.start + pause.len() / 2)
    }

    /// Finds the middle of the longest pause in the second half of the first `most` frames: of frames in which the blank is
    /// the likeliest token. Without a pause it is the frame with the likeliest blank.
    pub(super) fn pause(&self, most: usize) -> usize {
        let likeliest = || (most / 2..most).max_by(|&a, &b| self.row(a)[0].total_cmp(&self.row(b)[0])).unwrap_or(most);
        let longest = runs(most / 2..most, |frame| self.is_blank(frame)).max_by_key(Range::len);
        longest.map_or_else(likeliest, |pause| pause.start + pause.len() / 2).max(1)
    }

    /// Removes the first `count` frames, and returns them.
    pub(super) fn take(&mut self, count: usize) -> (CtcScores, Option<EncodedAudio>) {
        self.first += count;
        let rest = self.log_probs.split_off(count * self.vocabulary);
        let scores = CtcScores::new(std::mem::replace(&mut self.log_probs, rest), self.vocabulary);
        let encoded = self.encoded.as_mut().map(|all| {
            let whole = Tensor::cat(std::mem::take(all), 1);
            let frames = whole.dims()[1];
            if count < frames {
                all.push(whole.clone().narrow(1, count, frames - count));
            }
            EncodedAudio { frames: whole.narrow(1, 0, count), lengths: Lengths::new(vec![count as u32], count) }
        });
        (scores, encoded)
    }
}

/// Returns whether the blank is the likeliest token of a frame.
fn is_blank(row: &[f32]) -> bool {
    row[1..].iter().all(|value| *value < row[0])
}

/// Returns the longest runs of `frames` for which `is_one` holds, in order.
fn runs(frames: Range<usize>, is_one: impl Fn(usize) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut next = frames.start;
    iter::from_fn(move || {
        let start = (next..frames.end).find(|&frame| is_one(frame))?;
        next = (start..frames.end).find(|&frame| !is_one(frame)).unwrap_or(frames.end);
        Some(start..next)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_complete() {
        let of = |text: &str| runs(1..text.len(), |place| text.as_bytes()[place] == b'-').collect::<Vec<_>>();
        assert_eq!(of("--a--b-"), [1..2, 3..5, 6..7]);
        assert!(of("-ab").is_empty());
        assert_eq!(of("----b-"), [1..4, 5..6]);
        assert!(of("-").is_empty());
    }
}
