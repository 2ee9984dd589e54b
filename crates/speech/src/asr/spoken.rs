//! Finds the utterances of a known text in a long recording.

use std::iter;
use std::ops::Range;

use plimsoll_text::alignment::{AlignmentError, LogProbs, SegmentationOptions, TokenSpan, UtteranceSpan, segment};
use plimsoll_text::transcript::Word;

use super::Transcriber;
use super::decode::CtcScores;

/// An utterance of a known text, as a recording says it.
#[derive(Clone, Debug, PartialEq)]
pub struct SpokenUtterance {
    /// Start of the first word in seconds.
    pub start: f64,
    /// End of the last word in seconds.
    pub end: f64,
    /// Mean log-probability of the text in its worst second: near 0 if the recording says it, and far below if it does not say
    /// some part of it.
    pub score: f64,
    /// Words with their times.
    pub words: Vec<Word>,
}

/// A word of a known text, where a recording says it.
#[derive(Clone, Debug, PartialEq)]
pub struct SpokenWord {
    /// Word with its times, as the text has it.
    pub word: Word,
    /// Mean log-probability of the word in its worst second: near 0 if the recording says it, and far below if it does not.
    pub score: f64,
}

impl Transcriber {
    /// Finds the words of a text in a recording of any length with these scores. The recording may say other things before,
    /// between and after the words; a word that it does not say has a low score. In a language without spaces between words
    /// the whole text is one piece.
    ///
    /// An unknown capital letter counts as its lower-case letter, and other unknown characters count as silent. A word without
    /// any known character is left out. Time and memory grow as for `plimsoll_text::alignment::segment`.
    ///
    /// # Errors
    /// When the text has more tokens than the recording has frames.
    pub fn find_words(&self, scores: &CtcScores, text: &str) -> Result<Vec<SpokenWord>, AlignmentError> {
        let (tokens, given) = self.known_tokens(text);
        let begins_word = |token: u32| self.texts()[token as usize].starts_with(' ');
        let pieces: Vec<&[u32]> = tokens.chunk_by(|_, next| !begins_word(*next)).collect();
        let found = segment(&LogProbs::new(scores.log_probs(), scores.vocabulary())?, &pieces, self.options())?;
        let found: Vec<UtteranceSpan> = found.into_iter().flatten().collect();
        let spans: Vec<TokenSpan> = found.iter().flat_map(|span| span.tokens.clone()).collect();
        let scores = found.iter().flat_map(|span| iter::repeat_n(span.score, self.words(&span.tokens).len()));
        let spoken = |(word, score): (Word, f32)| SpokenWord { word, score: f64::from(score) };
        Ok(self.words_as_given(&spans, &given).into_iter().zip(scores).map(spoken).collect())
    }

    /// Returns how a text is searched: its score is averaged over a second.
    fn options(&self) -> SegmentationOptions {
        let window = (1.0 / self.frame_length().0).ceil() as usize;
        SegmentationOptions { window, ..SegmentationOptions::default() }
    }

    /// Finds the utterances `texts` in a recording with these scores. The recording may say other things before, between and
    /// after them; an utterance that it does not say has a score below `least_score`. `None` stands for a text without any
    /// character that the model knows.
    ///
    /// Time and memory grow as for `plimsoll_text::alignment::segment`: the time with the product of both lengths.
    ///
    /// # Errors
    /// When the texts have more tokens than the recording has frames.
    pub fn find_utterances(
        &self,
        scores: &CtcScores,
        texts: &[&str],
        least_score: f64,
    ) -> Result<Vec<Option<SpokenUtterance>>, AlignmentError> {
        let (tokens, given): (Vec<Vec<u32>>, Vec<Vec<&str>>) = texts.iter().map(|text| self.known_tokens(text)).unzip();
        let options = self.options();
        let found = segment(&LogProbs::new(scores.log_probs(), scores.vocabulary())?, &tokens, options)?;
        let found = Search { scores, tokens: &tokens, options, least: least_score as f32, found }.again();
        let utterance = |(span, given): (Option<UtteranceSpan>, &Vec<&str>)| {
            let span = span?;
            let words = self.words_as_given(&span.tokens, given);
            let (start, end) = (words.first()?.start, words.last()?.end);
            Some(SpokenUtterance { start, end, score: f64::from(span.score), words })
        };
        Ok(found.into_iter().zip(&given).map(utterance).collect())
    }
}

/// Second search of utterances with a low score. In the first one every utterance takes its frames, and one that is not said
/// takes those of its neighbors.
struct Search<'a> {
    scores: &'a CtcScores,
    tokens: &'a [Vec<u32>],
    options: SegmentationOptions,
    least: f32,
    found: Vec<Option<UtteranceSpan>>,
}

impl Search<'_> {
    /// Searches the utterances between those that were found.
    fn again(mut self) -> Vec<Option<UtteranceSpan>> {
        let mut start = 0;
        while start < self.found.len() {
            let end = (start..self.found.len()).find(|&place| self.is_said(place)).unwrap_or(self.found.len());
            if end > start {
                let before = start.checked_sub(1).and_then(|place| self.found[place].as_ref());
                let first = before.map_or(0, |span| span.last_frame + 1);
                let after = self.found.get(end).and_then(Option::as_ref);
                let last = after.map_or(self.scores.frames(), |span| span.first_frame);
                self.fill(start..end, first..last);
            }
            start = end + 1;
        }
        self.found
    }

    fn is_said(&self, place: usize) -> bool {
        self.found[place].as_ref().is_some_and(|span| span.score >= self.least)
    }

    /// Searches each of `places` alone in `frames`, keeps the best, and goes on before and after it.
    fn fill(&mut self, places: Range<usize>, frames: Range<usize>) {
        let alone = places.clone().filter_map(|place| Some((place, self.alone(place, &frames)?)));
        let best = alone.max_by(|a, b| a.1.score.total_cmp(&b.1.score));
        let Some((place, span)) = best.filter(|(_, span)| span.score >= self.least) else { return };
        let (first, next) = (span.first_frame, span.last_frame + 1);
        self.found[place] = Some(span);
        self.fill(places.start..place, frames.start..first);
        self.fill(place + 1..places.end, next..frames.end);
    }

    /// Finds an utterance in `frames`, as if there were no other.
    fn alone(&self, place: usize, frames: &Range<usize>) -> Option<UtteranceSpan> {
        let width = self.scores.vocabulary();
        let values = self.scores.log_probs().get(frames.start * width..frames.end * width)?;
        let log_probs = LogProbs::new(values, width).ok()?;
        let mut span = segment(&log_probs, &self.tokens[place..=place], self.options).ok()?.pop()??;
        span.first_frame += frames.start;
        span.last_frame += frames.start;
        for token in &mut span.tokens {
            token.first_frame += frames.start;
            token.last_frame += frames.start;
        }
        Some(span)
    }
}
