//! Reads Common Voice: tab-separated tables without quoting, with a header, and the audio in `clips/`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::builder::{Draft, ListingBuilder};
use super::error::ImportError;
use super::format::Format;
use super::json::number;
use super::tables::delimiter_of;
use super::walk::{folder_of, id_of, is_audio, name};
use crate::issue::{Issue, IssueKind};

/// Names of the lists in a folder: `validated.tsv` is read where it exists, else every other list that exists.
///
/// `validated.tsv` contains the utterances of the other lists, so reading both would give every utterance twice.
const LISTS: [&str; 4] = ["validated.tsv", "train.tsv", "dev.tsv", "test.tsv"];

/// Columns that a list must have.
const REQUIRED: [&str; 2] = ["path", "sentence"];

/// Name of the table of clip durations, in milliseconds.
const DURATIONS: &str = "clip_durations.tsv";

/// Adds the utterances of Common Voice to `builder`. `path` is one list, or a folder of lists.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let lists = lists(path);
    if lists.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::CommonVoice });
    }
    let folder = folder_of(&lists[0]).to_path_buf();
    let clips = builder.named_audio_folder("clips", &folder);
    let durations = durations(builder, &folder.join(DURATIONS));
    for list in lists {
        let mut header: Option<Header> = None;
        builder.read_optional_list(&list, |builder, location, line| match &header {
            Some(header) if header.missing().is_some() => {}
            Some(header) => builder.add(location, header.utterance(line, &clips, &durations)),
            None => {
                let read = header.insert(Header::read(line));
                if let Some(missing) = read.missing() {
                    builder.add_issue(location, None, missing);
                }
            }
        });
    }
    Ok(())
}

/// Returns `path` itself where it is a file, else the lists in the folder `path`.
pub(super) fn lists(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.into()];
    }
    let mut lists: Vec<PathBuf> = LISTS.iter().map(|list| path.join(list)).filter(|list| list.is_file()).collect();
    if lists.first().is_some_and(|list| name(list) == LISTS[0]) {
        lists.truncate(1);
    }
    lists
}

/// Index of each column of a table. Releases of Common Voice order the columns differently.
pub(super) struct Header {
    columns: usize,
    path: Option<usize>,
    sentence: Option<usize>,
    speaker: Option<usize>,
    language: Option<usize>,
    /// What is wrong where a required column is missing.
    missing: Option<IssueKind>,
}

impl Header {
    pub(super) fn read(line: &str) -> Self {
        let names: Vec<&str> = line.split('\t').map(str::trim).collect();
        let column = |name: &str| names.iter().position(|column| *column == name);
        Self {
            columns: names.len(),
            path: column("path"),
            sentence: column("sentence"),
            speaker: column("client_id"),
            language: column("locale"),
            missing: missing(line, &names),
        }
    }

    /// Returns an issue for the first required column that is missing; `None` if all required columns exist.
    pub(super) fn missing(&self) -> Option<IssueKind> {
        self.missing.clone()
    }

    fn utterance(&self, line: &str, clips: &Path, durations: &HashMap<String, Seconds>) -> Result<Draft, Issue> {
        let cells: Vec<&str> = line.split('\t').collect();
        if cells.len() != self.columns {
            let expected = format!("{} columns as in the header", self.columns);
            return Err(IssueKind::WrongColumnCount { expected, found: cells.len() }.into());
        }
        let cell = |column: Option<usize>| column.map(|column| cells[column].trim().to_owned());
        let mut clip = cell(self.path).unwrap_or_default();
        if clip.is_empty() {
            return Err(IssueKind::NoAudio("its path is empty".into()).into());
        }
        if !is_audio(Path::new(&clip)) {
            clip.push_str(".mp3");
        }
        Ok(Draft {
            id: id_of(Path::new(&name(Path::new(&clip))), Path::new("")),
            audio: clips.join(&clip),
            duration: durations.get(&clip).copied(),
            text: cell(self.sentence).unwrap_or_default(),
            speaker: cell(self.speaker),
            language: cell(self.language),
            ..Draft::default()
        })
    }
}

/// Returns what is wrong with a header without a required column. `names` are its columns between tabs.
fn missing(line: &str, names: &[&str]) -> Option<IssueKind> {
    let has = |names: &[&str], column| names.contains(&column);
    let missing = REQUIRED.into_iter().find(|column| !has(names, column))?;
    let other = delimiter_of(line).filter(|&(character, _)| {
        let names: Vec<&str> = line.split(character).map(|name| name.trim_matches(['"', ' '])).collect();
        REQUIRED.into_iter().all(|column| has(&names, column))
    });
    Some(match other {
        Some((_, found)) => IssueKind::WrongDelimiter { found, expected: "tabs" },
        None => IssueKind::MissingColumn(missing),
    })
}

/// Reads the duration of each clip from `clip_durations.tsv`, by the file name of the clip; empty without that file.
fn durations(builder: &mut ListingBuilder<'_>, file: &Path) -> HashMap<String, Seconds> {
    let mut durations = HashMap::new();
    if !file.is_file() {
        return durations;
    }
    builder.read_optional_list(file, |builder, location, line| {
        let (clip, written) = line.split_once('\t').unwrap_or((line, ""));
        if clip == "clip" {
            return;
        }
        match number("duration[ms]", written) {
            Ok(milliseconds) if milliseconds >= 0.0 => {
                durations.insert(clip.into(), Seconds(milliseconds / 1e3));
            }
            Ok(value) => {
                let kind = IssueKind::InvalidTime { key: "duration[ms]", value: value.to_string() };
                builder.add_issue(location, Some(clip.into()), kind);
            }
            Err(kind) => builder.add_issue(location, Some(clip.into()), kind),
        }
    });
    durations
}
