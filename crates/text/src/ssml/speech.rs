//! What is to be spoken: spans of text and pauses.

use super::prosody::Prosody;

/// Text that is spoken in one way.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The text, with single spaces.
    pub text: String,
    /// Factor of the usual rate, from 0.2 to 5.
    pub rate: f64,
    /// Difference to the usual pitch in semitones, from -24 to 24.
    pub pitch: f64,
    /// Difference to the usual volume in decibels, from -96 (silent) to 24.
    pub volume: f64,
}

/// A part of what is to be spoken.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Span(Span),
    /// Silence.
    Pause {
        /// Length in seconds, up to 10.
        seconds: f64,
    },
}

/// What is to be spoken, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speech {
    /// Spans and pauses. Neither the first nor the last part is a pause between sentences.
    pub parts: Vec<Part>,
    /// What was not understood, at most 20 warnings.
    pub warnings: Vec<String>,
}

impl Speech {
    /// Returns the text of all spans, separated by spaces.
    pub fn text(&self) -> String {
        let text = |part: &Part| match part {
            Part::Span(span) => Some(span.text.clone()),
            Part::Pause { .. } => None,
        };
        self.parts.iter().filter_map(text).collect::<Vec<_>>().join(" ")
    }

    /// Adds a text, and returns whether it is not empty.
    pub(super) fn push_text(&mut self, text: &str, prosody: Prosody) -> bool {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() {
            return false;
        }
        let Prosody { rate, pitch, volume } = prosody;
        self.parts.push(Part::Span(Span { text: words.join(" "), rate, pitch, volume }));
        true
    }

    /// Adds a pause that a person asked for.
    pub(super) fn push_pause(&mut self, seconds: f64) {
        if seconds > 0.0 {
            self.parts.push(Part::Pause { seconds });
        }
    }

    /// Adds a pause between sentences, and returns whether it is new. A pause that is there already becomes as long.
    pub(super) fn separate(&mut self, seconds: f64) -> bool {
        match self.parts.last_mut() {
            None => return false,
            Some(Part::Pause { seconds: last }) => *last = last.max(seconds),
            Some(Part::Span(_)) => {
                self.parts.push(Part::Pause { seconds });
                return true;
            }
        }
        false
    }

    /// Adds a warning, unless it is known or there are many.
    pub(super) fn warn(&mut self, warning: String) {
        const MOST: usize = 20;
        if self.warnings.len() < MOST && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}
