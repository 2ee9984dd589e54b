//! Subtitles: SubRip and WebVTT.

use super::Transcript;
use super::cues::{Cue, cues};
use super::span::printable;

/// First lines of a WebVTT file.
pub(super) const VTT_HEADER: &str = "WEBVTT\n\n";

/// Writes SubRip.
pub(super) fn srt(transcript: &Transcript) -> String {
    cues(transcript).into_iter().enumerate().map(|(place, cue)| srt_cue(place + 1, &cue)).collect()
}

/// Writes one subtitle of SubRip, which has no escapes: an arrow in the text becomes a shorter one.
pub(super) fn srt_cue(number: usize, cue: &Cue) -> String {
    let lines = cue.lines.join("\n").replace("-->", "->");
    format!("{number}\n{} --> {}\n{lines}\n\n", clock(cue.span.start, ','), clock(cue.span.end, ','))
}

/// Writes WebVTT.
pub(super) fn vtt(transcript: &Transcript) -> String {
    VTT_HEADER.to_owned() + &cues(transcript).iter().map(vtt_cue).collect::<String>()
}

/// Writes one subtitle of WebVTT.
pub(super) fn vtt_cue(cue: &Cue) -> String {
    let voice = cue.speaker.as_ref().map(|name| escape(&printable(name)).trim().to_owned());
    let voice = voice.filter(|name| !name.is_empty()).map_or_else(String::new, |name| format!("<v {name}>"));
    let lines = escape(&cue.lines.join("\n"));
    format!("{} --> {}\n{voice}{lines}\n\n", clock(cue.span.start, '.'), clock(cue.span.end, '.'))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Formats a time as hours, minutes, seconds and milliseconds.
fn clock(milliseconds: u64, mark: char) -> String {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    format!("{:02}:{:02}:{:02}{mark}{rest:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
