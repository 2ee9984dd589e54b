//! Reads Kaldi data folders: `wav.scp` and `text`, optionally `segments`, `utt2spk`, `utt2lang`, `utt2dur`, `reco2dur`.
//! A folder that `data pack` wrote has the ids that are no names of Kaldi in a table of their own.
//!
//! Audio may be in archives, `wav.ark:1234`: they are read where the position says, without unpacking. Of a command, the file
//! is read where its output is the same sound; other commands are issues.

mod archive;
mod command;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_core::{Seconds, error_chain};

use super::builder::{Draft, ListingBuilder, shortened};
use super::error::ImportError;
use super::format::Format;
use super::json::number;
use super::walk::{folder_of, name};
use crate::issue::{Issue, IssueKind, SourceLocation};
use command::{Channels, Listed};
use plimsoll_audio::{AudioSource, quick_audio_info};
use rayon::prelude::*;

/// Table with the ids of utterances whose ids are no names of Kaldi, as `data pack` writes it.
pub(crate) const OWN_ID_TABLE: &str = "utt2utterance_id";

/// Names of the two required files, by which a folder is detected.
pub(super) const REQUIRED: [&str; 2] = ["wav.scp", "text"];

/// Adds the utterances of a Kaldi folder to `builder`. `path` is the folder, or a `wav.scp` or `text` in it.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let folder = if path.is_dir() { path } else { folder_of(path) };
    let required = REQUIRED.map(|name| folder.join(name));
    if !required.iter().all(|file| file.is_file()) {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::Kaldi });
    }
    let [recordings, texts] = required;
    let audio = builder.audio_folder(folder);
    let mut recordings = Table::read(builder, recordings, command::audio_of)?;
    recordings.locate_in_archives(&audio);
    recordings.settle_rates(&audio);
    let data = Data {
        audio,
        recordings,
        segments: Table::read_if_present(builder, folder.join("segments"), Segment::read)?,
        speakers: Extra::read(builder, folder.join("utt2spk"), unchanged),
        languages: Extra::read(builder, folder.join("utt2lang"), unchanged),
        own_ids: Extra::read(builder, folder.join(OWN_ID_TABLE), unchanged),
        utterance_durations: Extra::read(builder, folder.join("utt2dur"), duration),
        recording_durations: Extra::read(builder, folder.join("reco2dur"), duration),
    };
    let texts = Table::read(builder, texts, unchanged)?;
    for row in &texts.rows {
        match data.utterance(row) {
            Ok(draft) => builder.add(texts.location(row), Ok(draft)),
            Err(issue) => builder.add(texts.location(row), Err(Issue { id: Some(row.key.clone()), ..issue })),
        }
    }
    data.add_textless(builder, &texts);
    Ok(())
}

/// Row of a Kaldi table: its line number, its key, and the parsed value or the issue of a bad value.
struct Row<T> {
    line: usize,
    key: String,
    value: Result<T, IssueKind>,
}

/// Content of one Kaldi file such as `text` or `wav.scp`: the rows in the order of the file, and the index of the row
/// of each key.
struct Table<T> {
    file: PathBuf,
    rows: Vec<Row<T>>,
    by_key: HashMap<String, usize>,
}

impl<T> Table<T> {
    fn read(
        builder: &mut ListingBuilder<'_>,
        file: PathBuf,
        value: fn(&str) -> Result<T, IssueKind>,
    ) -> Result<Self, ImportError> {
        let mut table = Self { file: file.clone(), rows: vec![], by_key: HashMap::new() };
        builder.read_list(&file, |builder, location, line| {
            let line = line.trim_start();
            let (key, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if let Some(&first) = table.by_key.get(key) {
                let first = table.location(&table.rows[first]);
                return builder.add_issue(location, Some(key.into()), IssueKind::DuplicateId(first));
            }
            table.by_key.insert(key.into(), table.rows.len());
            table.rows.push(Row {
                line: location.line.unwrap_or_default(),
                key: key.into(),
                value: value(rest.trim()),
            });
        })?;
        Ok(table)
    }

    fn read_if_present(
        builder: &mut ListingBuilder<'_>,
        file: PathBuf,
        value: fn(&str) -> Result<T, IssueKind>,
    ) -> Result<Option<Self>, ImportError> {
        file.is_file().then(|| Self::read(builder, file, value)).transpose()
    }

    fn location(&self, row: &Row<T>) -> SourceLocation {
        SourceLocation { file: self.file.clone(), line: Some(row.line) }
    }

    /// Returns the location and key of the rows whose key is missing in `other`.
    fn not_in<U>(&self, other: &Table<U>) -> Vec<(SourceLocation, String)> {
        let without = self.rows.iter().filter(|row| !other.by_key.contains_key(&row.key));
        without.map(|row| (self.location(row), row.key.clone())).collect()
    }

    /// Returns the value of `key`. The issue of a bad row has the location of that row.
    fn get(&self, key: &str) -> Result<&T, Issue> {
        let Some(&index) = self.by_key.get(key) else {
            let kind = IssueKind::NoAudio(format!("{} does not name `{key}`", name(&self.file)));
            return Err(kind.into());
        };
        let row = &self.rows[index];
        row.value.as_ref().map_err(|kind| Issue { location: Some(self.location(row)), ..Issue::from(kind.clone()) })
    }
}

/// Lowest sample rate that a command may reduce audio to, in hertz: that of models of speech. Where features have a higher
/// rate, a note says so.
const SPEECH_RATE: u32 = 16_000;

impl Table<Listed> {
    /// Looks at the files whose rate a command changes. Raising it changes nothing that is heard, and reducing it below
    /// that of speech removes a part of the sound.
    fn settle_rates(&mut self, audio: &Path) {
        let settle = |row: &mut Row<Listed>| {
            let Ok(Listed { path, rate: Some(rate), channels }) = &row.value else { return };
            // A file that cannot be read is found by the check.
            let found = quick_audio_info(audio.join(path)).map_or(0, |info| info.rate);
            if found > *rate && *rate < SPEECH_RATE {
                row.value = Err(IssueKind::LoweredByCommand { rate: *rate, found });
            } else if found <= *rate {
                row.value = Ok(Listed { path: path.clone(), rate: None, channels: *channels });
            }
        };
        self.rows.par_iter_mut().for_each(settle);
    }

    /// Replaces positions in archives by the audio there, relative to the folder `audio`.
    fn locate_in_archives(&mut self, audio: &Path) {
        let paths = self.rows.iter().enumerate().filter_map(|(n, row)| {
            let listed = row.value.as_ref().ok()?;
            Some((n, &*row.key, audio.join(&listed.path)))
        });
        for (n, part) in archive::locate(paths) {
            let Ok(Listed { path, rate, channels }) = &self.rows[n].value else { continue };
            let (rate, channels) = (*rate, *channels);
            let archive = path.rsplit_once(':').map_or(&**path, |(archive, _)| archive);
            self.rows[n].value = part.map(|part| {
                let audio = AudioSource { file: archive.into(), part: Some(part), channel: None };
                Listed { path: audio.to_path().to_string_lossy().into_owned(), rate, channels }
            });
        }
    }
}

/// Values of an optional table such as `utt2spk`, by key. A bad row becomes an issue, but its utterance stays usable
/// without the value.
struct Extra<T>(HashMap<String, T>);

impl<T> Extra<T> {
    fn read(builder: &mut ListingBuilder<'_>, file: PathBuf, value: fn(&str) -> Result<T, IssueKind>) -> Self {
        let mut known = HashMap::new();
        let table = match Table::read_if_present(builder, file.clone(), value) {
            Ok(table) => table,
            Err(error) => {
                builder.add_file_issue(&file, None, IssueKind::Unreadable(error_chain(&error)));
                None
            }
        };
        for Row { line, key, value } in table.into_iter().flat_map(|table| table.rows) {
            match value {
                Ok(value) => drop(known.insert(key, value)),
                Err(kind) => {
                    builder.add_issue(SourceLocation { file: file.clone(), line: Some(line) }, Some(key), kind);
                }
            }
        }
        Self(known)
    }

    fn get(&self, key: &str) -> Option<&T> {
        self.0.get(key)
    }
}

/// Part of a recording that an utterance is cut from.
struct Segment {
    recording: String,
    /// Start of the part in seconds.
    start: f64,
    /// End of the part in seconds; `None` for the end of the recording.
    end: Option<f64>,
    /// Channel of the recording, counted from 0; `None` for all of them.
    channel: Option<u16>,
}

impl Segment {
    fn read(value: &str) -> Result<Self, IssueKind> {
        let columns: Vec<&str> = value.split_whitespace().collect();
        let ([recording, start, end] | [recording, start, end, _]) = *columns else {
            let expected = "`utterance recording start end`, perhaps with a channel".into();
            return Err(IssueKind::WrongColumnCount { expected, found: columns.len() + 1 });
        };
        let channel = columns.get(3).map(|written| channel(written)).transpose()?;
        let (start, end) = (number("start", start)?, number("end", end)?);
        if start < 0.0 {
            return Err(IssueKind::InvalidTime { key: "start", value: start.to_string() });
        }
        // Kaldi writes an end of -1 for the end of the recording.
        let end = (end != -1.0).then_some(end);
        if let Some(end) = end.filter(|&end| end <= start) {
            return Err(IssueKind::EndsBeforeStart { start, end });
        }
        Ok(Self { recording: recording.into(), start, end, channel })
    }
}

/// All tables of a Kaldi folder except the texts.
struct Data {
    /// Folder that relative paths start from.
    audio: PathBuf,
    recordings: Table<Listed>,
    segments: Option<Table<Segment>>,
    speakers: Extra<String>,
    languages: Extra<String>,
    own_ids: Extra<String>,
    utterance_durations: Extra<f64>,
    recording_durations: Extra<f64>,
}

impl Data {
    fn utterance(&self, text: &Row<String>) -> Result<Draft, Issue> {
        let id = &text.key;
        let whole = Segment { recording: id.clone(), start: 0.0, end: None, channel: None };
        let segment = self.segments.as_ref().map_or(Ok(&whole), |segments| segments.get(id))?;
        let audio = self.recordings.get(&segment.recording)?;
        let recording_end = || self.recording_durations.get(&segment.recording).copied();
        let listed = || self.utterance_durations.get(id).copied();
        let duration = match segment.end {
            Some(end) => Some(end - segment.start),
            None => listed().or_else(|| Some(recording_end()? - segment.start)),
        };
        Ok(Draft {
            id: self.own_ids.get(id).unwrap_or(id).clone(),
            audio: self.path(audio, segment.channel)?,
            resampled: audio.rate,
            offset: Seconds(segment.start),
            duration: duration.map(Seconds),
            text: text.value.clone().unwrap_or_default(),
            // Kaldi's folders name the utterance itself where the speaker is unknown.
            speaker: self.speakers.get(id).filter(|&speaker| speaker != id).cloned(),
            language: self.languages.get(id).cloned(),
            ..Draft::default()
        })
    }

    /// Returns the path of the audio of an utterance, with its channel. The output of a command may have one channel.
    fn path(&self, audio: &Listed, channel: Option<u16>) -> Result<PathBuf, IssueKind> {
        let path = self.audio.join(&audio.path);
        match (audio.channels, channel) {
            (Channels::All, None) | (Channels::Average, None | Some(0)) => Ok(path),
            (Channels::All, Some(channel)) | (Channels::One(channel), None | Some(0)) => {
                Ok(AudioSource::path_of_channel(path, channel))
            }
            (_, Some(channel)) => Err(IssueKind::MissingChannel { channel, channels: 1 }),
        }
    }

    /// Adds an issue for every utterance with audio and without text.
    fn add_textless(&self, builder: &mut ListingBuilder<'_>, texts: &Table<String>) {
        let textless = match &self.segments {
            Some(segments) => segments.not_in(texts),
            None => self.recordings.not_in(texts),
        };
        for (location, key) in textless {
            builder.add_issue(location, Some(key), IssueKind::NoText);
        }
    }
}

/// Parses a channel, counted from 0. Some recipes write letters.
fn channel(written: &str) -> Result<u16, IssueKind> {
    match written {
        "A" => Ok(0),
        "B" => Ok(1),
        number => number.parse().map_err(|_| IssueKind::InvalidChannel(format!("`{}`", shortened(number)))),
    }
}

fn unchanged(value: &str) -> Result<String, IssueKind> {
    Ok(value.into())
}

fn duration(value: &str) -> Result<f64, IssueKind> {
    let value = number("duration", value)?;
    if value < 0.0 {
        return Err(IssueKind::InvalidTime { key: "duration", value: value.to_string() });
    }
    Ok(value)
}
