//! Words with times, from the frames of tokens.

use super::token_span::TokenSpan;
use crate::transcript::{Character, Word};

/// Makes words of aligned tokens. `text_of` gives the text of a token; a text that begins with a space begins a word.
///
/// The confidence of a word is the probability of its tokens, as a geometric mean over their frames. A token that is
/// one character becomes a [`Character`] of its word; a word with longer tokens has no characters.
///
/// ```
/// use plimsoll_text::alignment::{TokenSpan, words};
/// let span = |token, first_frame, last_frame| TokenSpan { token, first_frame, last_frame, score: -0.5 };
/// let names = ["", "a", " ", "b"];
/// let words = words(&[span(1, 0, 1), span(2, 2, 2), span(3, 4, 4)], |token| names[token as usize], 0.04);
/// assert_eq!((words[0].text.as_str(), words[0].start, words[0].end), ("a", 0.0, 0.08));
/// assert_eq!((words[1].text.as_str(), words[1].start, words[1].end), ("b", 0.16, 0.2));
/// assert!((words[1].confidence.unwrap() - 0.6065).abs() < 1e-4);
/// ```
pub fn words<'a>(spans: &[TokenSpan], text_of: impl Fn(u32) -> &'a str, frame_seconds: f64) -> Vec<Word> {
    let mut words: Vec<Vec<(&TokenSpan, &str)>> = Vec::new();
    let mut begins = true;
    for span in spans {
        let text = text_of(span.token);
        begins |= text.starts_with(' ');
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        match words.last_mut() {
            Some(word) if !begins => word.push((span, text)),
            _ => words.push(vec![(span, text)]),
        }
        begins = false;
    }
    words.iter().map(|tokens| word(tokens, frame_seconds)).collect()
}

fn word(tokens: &[(&TokenSpan, &str)], frame_seconds: f64) -> Word {
    let times =
        |span: &TokenSpan| (span.first_frame as f64 * frame_seconds, (span.last_frame + 1) as f64 * frame_seconds);
    let frames = |span: &TokenSpan| (span.last_frame + 1 - span.first_frame) as f64;
    let sum: f64 = tokens.iter().map(|(span, _)| f64::from(span.score) * frames(span)).sum();
    let count: f64 = tokens.iter().map(|(span, _)| frames(span)).sum();
    let character = |(span, text): &(&TokenSpan, &str)| {
        let mut characters = text.chars();
        let text = characters.next().filter(|_| characters.next().is_none())?;
        let (start, end) = times(span);
        Some(Character { text, start, end, confidence: Some(f64::from(span.score).exp()) })
    };
    Word {
        text: tokens.iter().map(|(_, text)| *text).collect(),
        start: tokens.first().map_or(0.0, |(span, _)| times(span).0),
        end: tokens.last().map_or(0.0, |(span, _)| times(span).1),
        confidence: Some((sum / count.max(1.0)).exp()),
        characters: tokens.iter().map(character).collect::<Option<Vec<_>>>().unwrap_or_default(),
    }
}
