//! Recognized text with times, and the files that other programs read.
//!
//! A [`Transcript`] has segments, a segment has words, and a word may have characters. [`Transcript::write`] makes one of six
//! [`TranscriptFormat`]s. Every writer accepts any times: they are made finite and ordered first, in whole milliseconds.
//!
//! ```
//! use plimsoll_text::transcript::{Segment, Transcript, Word};
//!
//! let words = vec![Word::new("good", 0.5, 0.8).with_confidence(0.9), Word::new("day", 0.8, 1.25)];
//! let transcript = Transcript { recording: "a1".into(), seconds: 2.0, segments: vec![Segment::new(words)], ..Default::default() };
//! assert_eq!(transcript.to_text(), "good day\n");
//! assert_eq!(transcript.to_srt(), "1\n00:00:00,500 --> 00:00:01,500\ngood day\n\n");
//! assert_eq!(transcript.to_ctm("1"), "a1 1 0.500 0.300 good 0.9000\na1 1 0.800 0.450 day\n");
//! ```

mod cues;
mod format;
mod span;
mod subtitles;
mod tables;
/// Rounds `value` to a whole number of parts, of which `parts` make 1. A value that is too large for this stays.
fn rounded(value: f64, parts: f64) -> f64 {
    let whole = (value * parts).round();
    if whole.is_finite() { whole / parts } else { value }
}

#[cfg(test)]
mod tests;
mod textgrid;
mod writer;

use serde::{Deserialize, Serialize};

pub use format::{TranscriptFormat, UnknownFormat};
use span::Milliseconds;
pub use writer::TranscriptWriter;

/// One character of a word, with its times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Character {
    /// The character.
    pub text: char,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Probability that the character is right, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
}

/// One word, with its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Word {
    /// The word, without white space.
    pub text: String,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Probability that the word is right, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Characters of the word; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub characters: Vec<Character>,
}

impl Word {
    /// Creates a word without confidence and without characters.
    pub fn new(text: impl Into<String>, start: f64, end: f64) -> Self {
        Self { text: text.into(), start, end, ..Self::default() }
    }

    /// Sets the confidence.
    #[must_use]
    pub fn with_confidence(self, confidence: f64) -> Self {
        Self { confidence: Some(confidence), ..self }
    }
}

/// A part of a recording, such as one utterance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Text of the segment.
    pub text: String,
    /// Start in seconds.
    pub start: f64,
    /// End in seconds.
    pub end: f64,
    /// Probability that the text is right, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Name of the speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<String>,
    /// Words of the segment. If empty, the words of the text share its time by their length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<Word>,
}

impl Segment {
    /// Creates a segment from its words: text, start and end follow from them, and the confidence is their mean.
    pub fn new(words: Vec<Word>) -> Self {
        let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        let (start, end) = (words.first().map_or(0.0, |word| word.start), words.last().map_or(0.0, |word| word.end));
        let known: Vec<f64> = words.iter().filter_map(|word| word.confidence).collect();
        let confidence = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        Self { text, start, end, confidence, speaker: None, words }
    }

    /// Returns the words with their times in order; those of the text if the segment lists none.
    fn timed_words(&self) -> Vec<Word> {
        let span = Milliseconds::new(self.start, self.end);
        let text: String =
            self.text.chars().filter(|character| !character.is_control() || *character == '\n').collect();
        let texts: Vec<&str> = text.split_whitespace().collect();
        let lengths: Vec<usize> = texts.iter().map(|text| text.chars().count()).collect();
        let shared = span.shares(&lengths).zip(texts).map(|(span, text)| Word::new(text, span.start(), span.end()));
        let mut words: Vec<Word> = if self.words.is_empty() { shared.collect() } else { self.words.clone() };
        words.retain_mut(|word| {
            let parts: Vec<String> = word.text.split_whitespace().map(span::printable).collect();
            word.text = parts.join("\u{a0}");
            !word.text.is_empty()
        });
        let mut last = 0;
        for word in &mut words {
            let span = Milliseconds::new(word.start, word.end).after(last);
            (word.start, word.end, last) = (span.start(), span.end(), span.end);
        }
        words
    }
}

/// Recognized text of one recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// Name of the recording.
    pub recording: String,
    /// Length of the recording in seconds.
    pub seconds: f64,
    /// Code of the language, such as `en`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// Segments in order of their starts.
    pub segments: Vec<Segment>,
}

impl Transcript {
    /// Writes the transcript in a format. CTM has the channel `1`.
    pub fn write(&self, format: TranscriptFormat) -> String {
        match format {
            TranscriptFormat::Text => self.to_text(),
            TranscriptFormat::Json => self.to_json(),
            TranscriptFormat::Srt => self.to_srt(),
            TranscriptFormat::Vtt => self.to_vtt(),
            TranscriptFormat::Ctm => self.to_ctm("1"),
            TranscriptFormat::TextGrid => self.to_textgrid(),
        }
    }

    /// Writes the texts of the segments, one a line.
    pub fn to_text(&self) -> String {
        let line = |segment: &Segment| segment.text.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
        self.segments.iter().map(line).collect()
    }

    /// Writes JSON with all fields: times in whole milliseconds, confidences with four digits. A time that is no number
    /// becomes 0.
    pub fn to_json(&self) -> String {
        let mut finite = self.clone();
        let fix = |start: &mut f64, end: &mut f64, confidence: &mut Option<f64>| {
            let fixed = |seconds: f64| if seconds.is_finite() { rounded(seconds, 1e3) } else { 0.0 };
            (*start, *end) = (fixed(*start), fixed(*end));
            *confidence = confidence.filter(|confidence| confidence.is_finite()).map(|share| rounded(share, 1e4));
        };
        fix(&mut finite.seconds, &mut 0.0, &mut None);
        for segment in &mut finite.segments {
            fix(&mut segment.start, &mut segment.end, &mut segment.confidence);
            for word in &mut segment.words {
                fix(&mut word.start, &mut word.end, &mut word.confidence);
                word.characters.iter_mut().for_each(|c| fix(&mut c.start, &mut c.end, &mut c.confidence));
            }
        }
        serde_json::to_string_pretty(&finite).expect("texts and finite numbers can be written") + "\n"
    }

    /// Writes SubRip subtitles: at most two lines of 42 characters and 7 seconds each, cut at the ends of sentences and
    /// at pauses.
    pub fn to_srt(&self) -> String {
        subtitles::srt(self)
    }

    /// Writes WebVTT subtitles, cut like those of [`to_srt`](Self::to_srt), with the names of speakers.
    pub fn to_vtt(&self) -> String {
        subtitles::vtt(self)
    }

    /// Writes NIST's CTM: recording, channel, start, duration, word and, if known, confidence.
    pub fn to_ctm(&self, channel: &str) -> String {
        tables::ctm(self, channel)
    }

    /// Writes a Praat TextGrid in the long format: tiers of segments, words and, if known, characters. Each speaker has
    /// tiers of its own.
    pub fn to_textgrid(&self) -> String {
        textgrid::write(self)
    }
}
