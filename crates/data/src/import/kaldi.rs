//! Kaldi's data folders: `wav.scp`, `text`, and perhaps `segments`, `utt2spk`, `utt2lang`, `utt2dur`, `reco2dur`.

mod command;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::format::Format;
use super::gathering::{Draft, Gathering};
use super::json::number;
use super::trouble::{ImportError, Place, Trouble};
use super::walk::{folder_of, name};
use plimsoll_core::error_chain;

/// The two files that make a folder Kaldi's.
pub(super) const NEEDED: [&str; 2] = ["wav.scp", "text"];

/// Reads a folder, or the one that the given `wav.scp` or `text` lies in.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let folder = if path.is_dir() { path } else { folder_of(path) };
    let needed = NEEDED.map(|name| folder.join(name));
    if !needed.iter().all(|file| file.is_file()) {
        return Err(ImportError::NotThis { path: path.into(), format: Format::Kaldi });
    }
    let [recordings, texts] = needed;
    let data = Data {
        audio: gathering.audio_folder(folder),
        recordings: Table::read(gathering, recordings, command::audio_of)?,
        segments: Table::if_there(gathering, folder.join("segments"), Segment::read)?,
        speakers: Extra::read(gathering, folder.join("utt2spk"), own),
        languages: Extra::read(gathering, folder.join("utt2lang"), own),
        utterance_durations: Extra::read(gathering, folder.join("utt2dur"), duration),
        recording_durations: Extra::read(gathering, folder.join("reco2dur"), duration),
    };
    let texts = Table::read(gathering, texts, own)?;
    for row in &texts.rows {
        match data.utterance(row) {
            Ok(draft) => gathering.take(texts.place(row), Ok(draft)),
            Err(Fault { place, trouble }) => {
                gathering.refuse(place.unwrap_or_else(|| texts.place(row)), Some(row.key.clone()), trouble);
            }
        }
    }
    data.report_without_text(gathering, &texts);
    Ok(())
}

/// A row of one of the tables: a name, and what the table says of it.
struct Row<T> {
    line: usize,
    key: String,
    value: Result<T, Trouble>,
}

/// One file, in its order and by name.
struct Table<T> {
    file: PathBuf,
    rows: Vec<Row<T>>,
    by_key: HashMap<String, usize>,
}

/// What is wrong, and where if that is not the line of the text.
struct Fault {
    place: Option<Place>,
    trouble: Trouble,
}

impl<T> Table<T> {
    fn read(
        gathering: &mut Gathering<'_>,
        file: PathBuf,
        value: fn(&str) -> Result<T, Trouble>,
    ) -> Result<Self, ImportError> {
        let mut table = Self { file: file.clone(), rows: vec![], by_key: HashMap::new() };
        gathering.list(&file, |gathering, place, line| {
            let line = line.trim_start();
            let (key, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if let Some(&first) = table.by_key.get(key) {
                let first = table.place(&table.rows[first]);
                return gathering.refuse(place, Some(key.into()), Trouble::DuplicateId(first));
            }
            table.by_key.insert(key.into(), table.rows.len());
            table.rows.push(Row { line: place.line.unwrap_or_default(), key: key.into(), value: value(rest.trim()) });
        })?;
        Ok(table)
    }

    fn if_there(
        gathering: &mut Gathering<'_>,
        file: PathBuf,
        value: fn(&str) -> Result<T, Trouble>,
    ) -> Result<Option<Self>, ImportError> {
        file.is_file().then(|| Self::read(gathering, file, value)).transpose()
    }

    fn place(&self, row: &Row<T>) -> Place {
        Place { file: self.file.clone(), line: Some(row.line) }
    }

    /// The rows of which another table says nothing.
    fn not_in<U>(&self, other: &Table<U>) -> Vec<(Place, String)> {
        let without = self.rows.iter().filter(|row| !other.by_key.contains_key(&row.key));
        without.map(|row| (self.place(row), row.key.clone())).collect()
    }

    fn get(&self, key: &str) -> Result<&T, Fault> {
        let Some(&index) = self.by_key.get(key) else {
            let trouble = Trouble::NoAudio(format!("{} does not name `{key}`", name(&self.file)));
            return Err(Fault { place: None, trouble });
        };
        let row = &self.rows[index];
        row.value.as_ref().map_err(|trouble| Fault { place: Some(self.place(row)), trouble: trouble.clone() })
    }
}

/// A table that may be missing, and of which a bad line only costs what it would have said.
struct Extra<T>(HashMap<String, T>);

impl<T> Extra<T> {
    fn read(gathering: &mut Gathering<'_>, file: PathBuf, value: fn(&str) -> Result<T, Trouble>) -> Self {
        let mut known = HashMap::new();
        let table = match Table::if_there(gathering, file.clone(), value) {
            Ok(table) => table,
            Err(error) => {
                gathering.refuse_file(&file, None, Trouble::Unreadable(error_chain(&error)));
                None
            }
        };
        for Row { line, key, value } in table.into_iter().flat_map(|table| table.rows) {
            match value {
                Ok(value) => drop(known.insert(key, value)),
                Err(trouble) => gathering.refuse(Place { file: file.clone(), line: Some(line) }, Some(key), trouble),
            }
        }
        Self(known)
    }

    fn get(&self, key: &str) -> Option<&T> {
        self.0.get(key)
    }
}

/// A stretch of a recording.
struct Segment {
    recording: String,
    start: f64,
    /// `None` is the end of the recording.
    end: Option<f64>,
}

impl Segment {
    fn read(value: &str) -> Result<Self, Trouble> {
        let columns: Vec<&str> = value.split_whitespace().collect();
        let [recording, start, end] = *columns else {
            let expected = "`utterance recording start end`".into();
            return Err(Trouble::Columns { expected, found: columns.len() + 1 });
        };
        let (start, end) = (number("start", start)?, number("end", end)?);
        if start < 0.0 {
            return Err(Trouble::WrongTime { key: "start", value: start.to_string() });
        }
        // Kaldi writes an end of -1 where the recording's is meant.
        let end = (end != -1.0).then_some(end);
        if let Some(end) = end.filter(|&end| end <= start) {
            return Err(Trouble::WrongEnd { start, end });
        }
        Ok(Self { recording: recording.into(), start, end })
    }
}

/// Everything a folder says but the texts.
struct Data {
    /// Where relative paths start.
    audio: PathBuf,
    recordings: Table<String>,
    segments: Option<Table<Segment>>,
    speakers: Extra<String>,
    languages: Extra<String>,
    utterance_durations: Extra<f64>,
    recording_durations: Extra<f64>,
}

impl Data {
    fn utterance(&self, text: &Row<String>) -> Result<Draft, Fault> {
        let id = &text.key;
        let whole = Segment { recording: id.clone(), start: 0.0, end: None };
        let segment = self.segments.as_ref().map_or(Ok(&whole), |segments| segments.get(id))?;
        let audio = self.recordings.get(&segment.recording)?;
        let recording_end = || self.recording_durations.get(&segment.recording).copied();
        let told = || self.utterance_durations.get(id).copied();
        let duration = match segment.end {
            Some(end) => Some(end - segment.start),
            None => told().or_else(|| Some(recording_end()? - segment.start)),
        };
        Ok(Draft {
            id: id.clone(),
            audio: self.audio.join(audio),
            offset: Seconds(segment.start),
            duration: duration.map(Seconds),
            text: text.value.clone().unwrap_or_default(),
            speaker: self.speakers.get(id).cloned(),
            language: self.languages.get(id).cloned(),
        })
    }

    /// Notes utterances that have audio and no text.
    fn report_without_text(&self, gathering: &mut Gathering<'_>, texts: &Table<String>) {
        let places = match &self.segments {
            Some(segments) => segments.not_in(texts),
            None => self.recordings.not_in(texts),
        };
        for (place, key) in places {
            gathering.refuse(place, Some(key), Trouble::NoText);
        }
    }
}

fn own(value: &str) -> Result<String, Trouble> {
    Ok(value.into())
}

fn duration(value: &str) -> Result<f64, Trouble> {
    let value = number("duration", value)?;
    if value < 0.0 {
        return Err(Trouble::WrongTime { key: "duration", value: value.to_string() });
    }
    Ok(value)
}
