//! Parses the right side of a line of `wav.scp`: a path, or a command whose output is the sound of a file.
//!
//! Commands are never run. A command is accepted where each of its words is known to leave the sound as it is, so a word
//! that is new to this module refuses the command and is named.

use std::path::Path;

use super::super::builder::shortened;
use super::super::walk::{is_audio, name};
use crate::issue::IssueKind;

/// Audio of a line of `wav.scp`.
#[derive(Debug, PartialEq)]
pub(super) struct Listed {
    /// Path of the file.
    pub(super) path: String,
    /// Sample rate that a command asks for, in hertz.
    pub(super) rate: Option<u32>,
    /// Channels that a command leaves.
    pub(super) channels: Channels,
}

/// Channels of a file that are heard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Channels {
    /// All, as the file has them.
    #[default]
    All,
    /// The average of all.
    Average,
    /// One, counted from 0.
    One(u16),
}

/// Returns the audio that a value of `wav.scp` refers to.
pub(super) fn audio_of(value: &str) -> Result<Listed, IssueKind> {
    if let Some(command) = value.strip_suffix('|') {
        return unpacked(command).map_err(|refused| match refused {
            Refused::Unknown => IssueKind::AudioFromCommand(shortened(value)),
            Refused::Changes(word) => {
                IssueKind::AudioChangedByCommand { change: shortened(&word), command: shortened(value) }
            }
        });
    }
    match value {
        "" => Err(IssueKind::NoAudio("its path is empty".into())),
        "-" => Err(IssueKind::AudioFromCommand("`-`, the standard input".into())),
        archive if is_unreadable_archive(archive) => Err(IssueKind::AudioInArchive(shortened(archive))),
        path => Ok(Listed { path: path.into(), rate: None, channels: Channels::All }),
    }
}

/// Returns whether the value is an archive without a position, or with a range behind the position, `FILE.ark:12[0:9]`,
/// which only matrices have.
fn is_unreadable_archive(value: &str) -> bool {
    value.ends_with(".ark") || value.split_once(".ark:").is_some_and(|(_, place)| place.ends_with(']'))
}

/// Reason why the output of a command is not read from its file.
enum Refused {
    /// The program is not known, or the files are not one.
    Unknown,
    /// A word may change the sound.
    Changes(String),
}

/// What the steps of a command do.
#[derive(Default)]
struct Effect {
    /// Audio files that are read.
    files: Vec<String>,
    /// Lowest sample rate that is asked for.
    rate: Option<u32>,
    channels: Channels,
}

/// Words of one step behind the name of its program.
type Words<'a, 'b> = std::iter::Peekable<std::slice::Iter<'b, &'a str>>;

/// Divides a command into steps, and steps into words. Quotation marks hold a word together.
fn steps(command: &str) -> Result<Vec<Vec<String>>, Refused> {
    let (mut steps, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    for c in command.chars() {
        match (c, quote) {
            // Their effect depends on the shell.
            ('$' | '`' | '\\', _) | (';' | '&' | '<' | '>' | '*' | '?', None) => return Err(Refused::Unknown),
            (mark, Some(open)) if mark == open => quote = None,
            (mark @ ('"' | '\''), None) => {
                quote = Some(mark);
                word.get_or_insert_default();
            }
            ('|', None) => {
                words.extend(word.take());
                steps.push(std::mem::take(&mut words));
            }
            (blank, None) if blank.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    steps.push(words);
    if quote.is_some() { Err(Refused::Unknown) } else { Ok(steps) }
}

/// Returns the audio of a command that leaves the sound of one file as it is.
fn unpacked(command: &str) -> Result<Listed, Refused> {
    let mut effect = Effect::default();
    for step in steps(command)? {
        let words: Vec<&str> = step.iter().map(String::as_str).collect();
        let [program, words @ ..] = &*words else { return Err(Refused::Unknown) };
        let words = words.iter().peekable();
        match name(Path::new(program)).as_str() {
            "cat" => effect.cat(words)?,
            "flac" => effect.flac(words)?,
            "sph2pipe" => effect.sph2pipe(words)?,
            "sox" => effect.sox(words)?,
            "ffmpeg" => effect.ffmpeg(words)?,
            _ => return Err(Refused::Unknown),
        }
    }
    match &mut *effect.files {
        [file] if is_audio(Path::new(file)) => {
            Ok(Listed { path: std::mem::take(file), rate: effect.rate, channels: effect.channels })
        }
        _ => Err(Refused::Unknown),
    }
}

fn changes(word: &str) -> Refused {
    Refused::Changes(word.into())
}

/// Refuses a word with its value.
fn changes_to(word: &str, value: Option<&str>) -> Refused {
    Refused::Changes(format!("{word} {}", value.unwrap_or_default()))
}

/// Checks a number of channels: one, which is the average of all.
fn one_channel(word: &str, value: Option<&str>) -> Result<(), Refused> {
    if value == Some("1") { Ok(()) } else { Err(changes_to(word, value)) }
}

/// Reads a number of a channel from 1 on, as a channel from 0 on.
fn counted_from_1(value: &str) -> Option<u16> {
    value.parse::<u16>().ok()?.checked_sub(1)
}

/// Reads a filter of ffmpeg that leaves one channel: `pan=mono|c0=c1`, or with `FL` and `FR`.
fn panned(filter: &str) -> Option<u16> {
    let filter = filter.strip_prefix("pan=")?;
    let (_, channel) = filter.split_once('|').filter(|(layout, _)| matches!(*layout, "mono" | "1c" | "1"))?;
    match channel.strip_prefix("c0=").or_else(|| channel.strip_prefix("FC="))? {
        "FL" => Some(0),
        "FR" => Some(1),
        number => number.strip_prefix('c')?.parse().ok(),
    }
}

impl Effect {
    /// Adds a file that is read, unless it is the output of the step before.
    fn add_file(&mut self, word: &str) {
        if word != "-" {
            self.files.push(word.into());
        }
    }

    /// Averages the channels.
    fn average(&mut self) {
        if self.channels == Channels::All {
            self.channels = Channels::Average;
        }
    }

    /// Keeps one channel, counted from 0; `None` for a value that is none. What has one channel has no other.
    fn keep(&mut self, word: &str, value: &str, channel: Option<u16>) -> Result<(), Refused> {
        match (self.channels, channel) {
            (Channels::All, Some(channel)) => self.channels = Channels::One(channel),
            (_, Some(0)) => {}
            _ => return Err(changes_to(word, Some(value))),
        }
        Ok(())
    }

    /// Adds a sample rate, such as `16000` or `16k`.
    fn add_rate(&mut self, word: &str, value: Option<&str>) -> Result<(), Refused> {
        let hertz = value.and_then(|value| match value.strip_suffix('k') {
            Some(thousands) => thousands.parse::<f64>().ok().map(|thousands| thousands * 1e3),
            None => value.parse().ok(),
        });
        let rate = hertz.filter(|rate| (1.0..1e6).contains(rate)).ok_or_else(|| changes(word))? as u32;
        self.rate = Some(self.rate.map_or(rate, |known| known.min(rate)));
        Ok(())
    }

    fn cat(&mut self, words: Words<'_, '_>) -> Result<(), Refused> {
        for &word in words {
            if word.starts_with('-') && word != "-" {
                return Err(changes(word));
            }
            self.add_file(word);
        }
        Ok(())
    }

    fn flac(&mut self, words: Words<'_, '_>) -> Result<(), Refused> {
        for &word in words {
            match word.strip_prefix("--") {
                Some("decode" | "stdout" | "silent" | "totally-silent" | "force" | "no-preserve-modtime") => {}
                Some(_) => return Err(changes(word)),
                None if word == "-" => {}
                None => match word.strip_prefix('-') {
                    Some(letters) if letters.chars().all(|letter| "dcsf".contains(letter)) => {}
                    Some(_) => return Err(changes(word)),
                    None => self.add_file(word),
                },
            }
        }
        Ok(())
    }

    fn sph2pipe(&mut self, mut words: Words<'_, '_>) -> Result<(), Refused> {
        while let Some(&word) = words.next() {
            match word {
                "-p" => {}
                "-f" if words.next().is_some_and(|form| matches!(*form, "wav" | "rif")) => {}
                "-c" => {
                    let value = words.next().copied().unwrap_or_default();
                    self.keep(word, value, counted_from_1(value))?;
                }
                other if other.starts_with('-') => return Err(changes(other)),
                file => self.add_file(file),
            }
        }
        Ok(())
    }

    /// Reads `sox [options] IN [options] OUT [effects]`. Options of a format before a file describe that file.
    fn sox(&mut self, mut words: Words<'_, '_>) -> Result<(), Refused> {
        // What the output has follows from the effects, which come first.
        let (mut seen, mut is_averaged) = (0, false);
        while let Some(&word) = words.next() {
            let is_output = seen == 1;
            match word {
                "-" => seen += 1,
                "-q" | "-S" | "-D" | "-R" | "--no-show-progress" | "--no-dither" => {}
                verbose if verbose.starts_with("-V") => {}
                "-t" if words
                    .next()
                    .is_some_and(|form| *form != "raw" && !form.starts_with("al") && !form.starts_with("ul")) => {}
                "-r" | "--rate" if is_output => self.add_rate(word, words.next().copied())?,
                "-c" | "--channels" if is_output => {
                    one_channel(word, words.next().copied())?;
                    is_averaged = true;
                }
                // 16 bits and more lose nothing that is heard.
                "-b" | "--bits"
                    if is_output && words.peek().is_some_and(|bits| matches!(**bits, "16" | "24" | "32")) =>
                {
                    words.next();
                }
                "-e" | "--encoding" if is_output && words.peek().is_some_and(|name| name.starts_with("sign")) => {
                    words.next();
                }
                other if other.starts_with('-') => return Err(changes(other)),
                "rate" if seen == 2 => {
                    let quality = |word: &&&str| word.starts_with('-') && "qlmhvsLIMa".contains(&word[1..]);
                    while words.next_if(|word| quality(word)).is_some() {}
                    self.add_rate(word, words.next().copied())?;
                }
                "channels" if seen == 2 => {
                    one_channel(word, words.next().copied())?;
                    self.average();
                }
                "remix" if seen == 2 => match words.next().copied().unwrap_or_default() {
                    "-" => self.average(),
                    value => self.keep(word, value, counted_from_1(value))?,
                },
                file if seen == 0 => {
                    self.add_file(file);
                    seen += 1;
                }
                other if seen == 2 => return Err(changes(other)),
                // Another file than the output of the step.
                _ => return Err(Refused::Unknown),
            }
        }
        if is_averaged {
            self.average();
        }
        if seen == 2 { Ok(()) } else { Err(Refused::Unknown) }
    }

    fn ffmpeg(&mut self, mut words: Words<'_, '_>) -> Result<(), Refused> {
        // The number of channels of the output comes after filters.
        let (mut has_input, mut is_averaged) = (false, false);
        while let Some(&word) = words.next() {
            match word {
                "-y" | "-n" | "-nostdin" | "-hide_banner" | "-nostats" | "-vn" | "-sn" | "-dn" | "-bitexact" => {}
                "-loglevel" | "-v" | "-threads" => drop(words.next()),
                "-map_metadata" | "-fflags" if has_input => drop(words.next()),
                "-i" if !has_input => {
                    has_input = true;
                    self.add_file(words.next().copied().unwrap_or_default());
                }
                "-f" if words
                    .next()
                    .is_some_and(|form| matches!(*form, "wav" | "flac" | "mp3" | "ogg" | "mov" | "mp4")) => {}
                "-ar" if has_input => self.add_rate(word, words.next().copied())?,
                "-ac" if has_input => {
                    one_channel(word, words.next().copied())?;
                    is_averaged = true;
                }
                "-map_channel" if has_input => {
                    // The file, the stream in it and the channel.
                    let value = words.next().copied().unwrap_or_default();
                    self.keep(word, value, value.strip_prefix("0.0.").and_then(|channel| channel.parse().ok()))?;
                }
                "-af" | "-filter:a" if has_input => {
                    let value = words.next().copied().unwrap_or_default();
                    self.keep(word, value, panned(value))?;
                }
                "-acodec" | "-c:a" | "-codec:a"
                    if has_input
                        && words.peek().is_some_and(|name| {
                            matches!(**name, "pcm_s16le" | "pcm_s24le" | "pcm_s32le" | "pcm_f32le" | "flac")
                        }) =>
                {
                    words.next();
                }
                "-sample_fmt"
                    if has_input && words.peek().is_some_and(|form| matches!(**form, "s16" | "s32" | "flt")) =>
                {
                    words.next();
                }
                "-" | "pipe:" | "pipe:1" | "/dev/stdout" if has_input => {}
                other => return Err(changes(other)),
            }
        }
        if is_averaged {
            self.average();
        }
        if has_input { Ok(()) } else { Err(Refused::Unknown) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_unpacking_command_is_found() {
        for (value, expected) in [
            ("/usr/bin/flac -c -d -s a/b.flac |", Some(("a/b.flac", None))),
            ("flac -dcs a.flac | sox -t wav - -r 16000 -t wav - |", Some(("a.flac", Some(16_000)))),
            ("flac -c -d --silent a.flac |", Some(("a.flac", None))),
            ("ffmpeg -i a.mp3 -ar 16000 -f wav - |", Some(("a.mp3", Some(16_000)))),
            ("ffmpeg -v 8 -nostdin -i a.mp3 -vn -acodec pcm_s16le -ac 1 -f wav pipe:1 |", Some(("a.mp3", None))),
            ("sox a.wav -t wav - |", Some(("a.wav", None))),
            ("sox -V1 -t mp3 a.mp3 -b 16 -c 1 -e signed-integer -t wav - rate -v 8k |", Some(("a.mp3", Some(8_000)))),
            ("sox a.wav -r 44.1k -t wav - remix - |", Some(("a.wav", Some(44_100)))),
            ("sph2pipe -f wav -p a.wav |", Some(("a.wav", None))),
            ("cat a.opus|", Some(("a.opus", None))),
            ("cat 'a b;c.opus' |", Some(("a b;c.opus", None))),
            ("a.ark:123", Some(("a.ark:123", None))),
            ("a b.wav", Some(("a b.wav", None))),
        ] {
            let found = audio_of(value).ok().map(|Listed { path, rate, .. }| (path, rate));
            assert_eq!(found, expected.map(|(path, rate)| (path.into(), rate)), "{value}");
        }
    }

    #[test]
    fn the_channel_that_a_command_leaves_is_found() {
        use Channels::{All, Average, One};
        for (value, expected) in [
            ("sox a.wav -t wav - |", Some(All)),
            ("sox a.wav -c 1 -t wav - |", Some(Average)),
            ("sox a.wav -t wav - remix - |", Some(Average)),
            ("sox a.wav -t wav - remix 1 |", Some(One(0))),
            ("sox a.wav -c 1 -t wav - remix 2 |", Some(One(1))),
            ("sox a.wav -t wav - remix 2 channels 1 |", Some(One(1))),
            ("sox a.wav -t wav - remix 2 | sox -t wav - -t wav - remix 1 |", Some(One(1))),
            ("sox a.wav -c 1 -t wav - | sox -t wav - -t wav - remix 1 |", Some(Average)),
            ("sox a.wav -c 1 -t wav - | sox -t wav - -t wav - remix 2 |", None),
            ("sox a.wav -t wav - remix 1 2 |", None),
            ("sox a.wav -t wav - remix 1,2 |", None),
            ("sox a.wav -t wav - remix 0 |", None),
            ("sox a.wav -t wav - remix 1v0.5 |", None),
            ("sph2pipe -f wav -p -c 2 a.wav |", Some(One(1))),
            ("ffmpeg -i a.mp3 -map_channel 0.0.1 -f wav - |", Some(One(1))),
            ("ffmpeg -i a.mp3 -map_channel 0.1.1 -f wav - |", None),
            ("ffmpeg -i a.mp3 -ac 1 -af 'pan=mono|c0=c1' -f wav - |", Some(One(1))),
            ("ffmpeg -i a.mp3 -filter:a \"pan=mono|c0=FL\" -f wav - |", Some(One(0))),
            ("ffmpeg -i a.mp3 -af 'pan=mono|c0=0.5*c0+0.5*c1' -f wav - |", None),
            ("ffmpeg -i a.mp3 -af 'pan=stereo|c0=c1|c1=c1' -f wav - |", None),
            ("ffmpeg -i a.mp3 -ac 1 -f wav - |", Some(Average)),
        ] {
            assert_eq!(audio_of(value).ok().map(|listed| listed.channels), expected, "{value}");
        }
    }

    #[test]
    fn a_word_that_changes_the_sound_is_named() {
        for (value, expected) in [
            ("sox a.wav -t wav - speed 0.9 |", "speed"),
            ("sox a.wav -t wav - tempo 1.1 |", "tempo"),
            ("sox a.wav -t wav - trim 0 3 |", "trim"),
            ("sox a.wav -t wav - remix 1,2 |", "remix 1,2"),
            ("sox a.wav -t wav - gain -n -3 |", "gain"),
            ("sox a.wav -t wav - vol 0.5 |", "vol"),
            ("sox -v 0.5 a.wav -t wav - |", "-v"),
            ("sox --norm a.wav -t wav - |", "--norm"),
            ("sox a.wav -c 2 -t wav - |", "-c 2"),
            ("sox a.wav -b 8 -t wav - |", "-b"),
            ("sox a.wav -r x -t wav - |", "-r"),
            ("sox -r 8000 a.wav -t wav - |", "-r"),
            ("flac -dcs a.flac | sox -t wav - -t wav - reverb |", "reverb"),
            ("flac -dc --until=3 a.flac |", "--until=3"),
            ("sph2pipe -f wav -p -c 3-4 a.wav |", "-c 3-4"),
            ("sph2pipe -f wav -p -t 1:2 a.wav |", "-t"),
            ("ffmpeg -ss 3 -i a.mp3 -f wav - |", "-ss"),
            ("ffmpeg -i a.mp3 -t 3 -f wav - |", "-t"),
            ("ffmpeg -i a.mp3 -af volume=2 -f wav - |", "-af volume=2"),
            ("ffmpeg -i a.mp3 -filter:a atempo=2 -f wav - |", "-filter:a atempo=2"),
            ("ffmpeg -i a.mp3 -acodec pcm_mulaw -f wav - |", "-acodec"),
        ] {
            match audio_of(value) {
                Err(IssueKind::AudioChangedByCommand { change, command }) => {
                    assert_eq!((&*change, &*command), (expected, value));
                }
                other => panic!("{value}: {other:?}"),
            }
        }
    }

    #[test]
    fn other_commands_are_not_run() {
        for value in [
            "sox a.wav b.wav -t wav - |",
            "sox a.wav |",
            "cat a.wav; rm b |",
            "cat a.wav b.wav |",
            "python make.py a.wav |",
            "sph2pipe -f wav a.sph |",
            "ffmpeg |",
            "wav-reverberate a.wav - |",
            "cat 'a.wav |",
            "cat `a.wav` |",
            "|",
        ] {
            assert!(matches!(audio_of(value), Err(IssueKind::AudioFromCommand(_))), "{value}: {:?}", audio_of(value));
        }
        for value in ["a.ark:123[0:9]", "a.ark", "", "-"] {
            assert!(audio_of(value).is_err(), "{value}");
        }
    }
}
