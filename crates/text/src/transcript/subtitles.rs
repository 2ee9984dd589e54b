//! Subtitles: SubRip and WebVTT.

use super::Transcript;
use super::cues::cues;
use super::span::printable;

/// Writes SubRip. It has no escapes, so an arrow in the text becomes a shorter one.
pub(super) fn srt(transcript: &Transcript) -> String {
    let cue = |(place, cue): (usize, super::cues::Cue)| {
        let lines = cue.lines.join("\n").replace("-->", "->");
        format!("{}\n{} --> {}\n{lines}\n\n", place + 1, clock(cue.span.start, ','), clock(cue.span.end, ','))
    };
    cues(transcript).into_iter().enumerate().map(cue).collect()
}

/// Writes WebVTT.
pub(super) fn vtt(transcript: &Transcript) -> String {
    let mut output = String::from("WEBVTT\n\n");
    for cue in cues(transcript) {
        let voice = cue.speaker.map(|name| escape(&printable(&name)).trim().to_owned()).filter(|name| !name.is_empty());
        let voice = voice.map_or_else(String::new, |name| format!("<v {name}>"));
        let lines = escape(&cue.lines.join("\n"));
        output += &format!("{} --> {}\n{voice}{lines}\n\n", clock(cue.span.start, '.'), clock(cue.span.end, '.'));
    }
    output
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a time as hours, minutes, seconds and milliseconds.
fn clock(milliseconds: u64, mark: char) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    format!("{:02}:{:02}:{:02}{mark}{rest:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
