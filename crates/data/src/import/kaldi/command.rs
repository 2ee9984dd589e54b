//! Parses the right side of a line of `wav.scp`: a path, or a command that only unpacks a file.

use std::path::Path;

use super::super::builder::shortened;
use super::super::walk::{is_audio, name};
use crate::issue::IssueKind;

/// Names of programs that unpack audio.
const PROGRAMS: [&str; 5] = ["sph2pipe", "sox", "ffmpeg", "flac", "cat"];

/// Arguments that change the sound. The audio of the file would then differ from the output of the command.
const CHANGING_ARGUMENTS: [&str; 17] = [
    "speed",
    "tempo",
    "pitch",
    "trim",
    "reverse",
    "pad",
    "remix",
    "silence",
    "reverb",
    "vad",
    "splice",
    "-ss",
    "-to",
    "-af",
    "-filter_complex",
    "-map_channel",
    "-filter:a",
];

/// Returns the audio file that a value of `wav.scp` refers to. Commands are never run.
pub(super) fn audio_of(value: &str) -> Result<String, IssueKind> {
    if let Some(command) = value.strip_suffix('|') {
        return unpacked(command).ok_or_else(|| IssueKind::AudioFromCommand(shortened(value)));
    }
    match value {
        "" => Err(IssueKind::NoAudio("its path is empty".into())),
        "-" => Err(IssueKind::AudioFromCommand("`-`, the standard input".into())),
        archive if is_unreadable_archive(archive) => Err(IssueKind::AudioInArchive(shortened(archive))),
        path => Ok(path.into()),
    }
}

/// Returns whether the value is an archive without a position, or with a range behind the position, `FILE.ark:12[0:9]`,
/// which only matrices have.
fn is_unreadable_archive(value: &str) -> bool {
    value.ends_with(".ark") || value.split_once(".ark:").is_some_and(|(_, place)| place.ends_with(']'))
}

/// Returns the audio file of a command that only unpacks a file; `None` for any other command.
fn unpacked(command: &str) -> Option<String> {
    // Their effect depends on the shell, and a quoted name may contain blanks.
    if command.contains([';', '&', '$', '`', '<', '>', '"', '\'', '\\', '*', '?']) {
        return None;
    }
    let mut files = Vec::new();
    for step in command.split('|') {
        let words: Vec<&str> = step.split_whitespace().collect();
        let program = name(Path::new(words.first()?));
        let cuts = match program.as_str() {
            "ffmpeg" => words.contains(&"-t"),
            "sph2pipe" => words.iter().any(|word| word.starts_with("-c") || word.starts_with("-t")),
            "flac" => words.iter().any(|word| word.starts_with("--skip") || word.starts_with("--until")),
            _ => false,
        };
        if cuts || !PROGRAMS.contains(&program.as_str()) || words.iter().any(|word| CHANGING_ARGUMENTS.contains(word)) {
            return None;
        }
        files.extend(words.into_iter().skip(1).filter(|word| !word.starts_with('-') && is_audio(Path::new(word))));
    }
    match *files {
        [file] => Some(file.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_unpacking_command_is_found() {
        for (value, expected) in [
            ("sph2pipe -f wav -p -c 1 /a/b.wav |", None),
            ("/usr/bin/flac -c -d -s a/b.flac |", Some("a/b.flac")),
            ("flac -dcs a.flac | sox -t wav - -r 16000 -t wav - |", Some("a.flac")),
            ("ffmpeg -i a.mp3 -ar 16000 -f wav - |", Some("a.mp3")),
            ("ffmpeg -ss 3 -i a.mp3 -f wav - |", None),
            ("sox a.wav -t wav - speed 0.9 |", None),
            ("sox a.wav b.wav -t wav - |", None),
            ("cat a.opus|", Some("a.opus")),
            ("cat a.wav; rm b |", None),
            ("python make.py a.wav |", None),
            ("sph2pipe -f wav a.sph |", None),
            ("|", None),
            ("a.ark:123", Some("a.ark:123")),
            ("a.ark:123[0:9]", None),
            ("a.ark", None),
            ("a b.wav", Some("a b.wav")),
        ] {
            assert_eq!(audio_of(value).ok().as_deref(), expected, "{value}");
        }
    }
}
