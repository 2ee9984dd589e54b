//! Common Voice: tables without quoting, columns named by a header, and the audio in `clips/`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused};
use super::json::number;
use super::trouble::{ImportError, Trouble};
use super::walk::{folder_of, id_of, is_audio, name};

/// The lists of a folder: the first if it is there, else all the others that are.
///
/// What `validated.tsv` lists includes the others, so reading both would name everything twice.
const LISTS: [&str; 4] = ["validated.tsv", "train.tsv", "dev.tsv", "test.tsv"];

/// How long the clips are, in thousandths of a second.
const DURATIONS: &str = "clip_durations.tsv";

/// Reads one list, or those of a folder.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let lists = lists(path);
    if lists.is_empty() {
        return Err(ImportError::NotThis { path: path.into(), format: Format::CommonVoice });
    }
    let folder = folder_of(&lists[0]).to_path_buf();
    let clips = gathering.audio_folder_called("clips", &folder);
    let durations = durations(gathering, &folder.join(DURATIONS));
    for list in lists {
        let mut header: Option<Header> = None;
        gathering.side_list(&list, |gathering, place, line| match &header {
            Some(header) if header.missing().is_some() => {}
            Some(header) => gathering.take(place, header.utterance(line, &clips, &durations)),
            None => {
                let read = header.insert(Header::read(line));
                if let Some(missing) = read.missing() {
                    gathering.refuse(place, None, missing);
                }
            }
        });
    }
    Ok(())
}

/// The lists that `path` is or holds.
pub(super) fn lists(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.into()];
    }
    let mut there: Vec<PathBuf> = LISTS.iter().map(|list| path.join(list)).filter(|list| list.is_file()).collect();
    if there.first().is_some_and(|list| name(list) == LISTS[0]) {
        there.truncate(1);
    }
    there
}

/// Where the columns are, which changes from release to release.
pub(super) struct Header {
    columns: usize,
    path: Option<usize>,
    sentence: Option<usize>,
    speaker: Option<usize>,
    language: Option<usize>,
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
        }
    }

    /// What it takes to be a list, where that is not there.
    pub(super) fn missing(&self) -> Option<Trouble> {
        let missing = [(self.path, "path"), (self.sentence, "sentence")];
        missing.into_iter().find(|(column, _)| column.is_none()).map(|(_, name)| Trouble::MissingColumn(name))
    }

    fn utterance(&self, line: &str, clips: &Path, durations: &HashMap<String, Seconds>) -> Result<Draft, Refused> {
        let cells: Vec<&str> = line.split('\t').collect();
        if cells.len() != self.columns {
            let expected = format!("{} columns as in the header", self.columns);
            return Err(Trouble::Columns { expected, found: cells.len() }.into());
        }
        let cell = |column: Option<usize>| column.map(|column| cells[column].trim().to_owned());
        let mut clip = cell(self.path).unwrap_or_default();
        if clip.is_empty() {
            return Err(Trouble::NoAudio("its path is empty".into()).into());
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

/// The durations that are told beside the lists, if they are.
fn durations(gathering: &mut Gathering<'_>, file: &Path) -> HashMap<String, Seconds> {
    let mut durations = HashMap::new();
    if !file.is_file() {
        return durations;
    }
    gathering.side_list(file, |gathering, place, line| {
        let (clip, written) = line.split_once('\t').unwrap_or((line, ""));
        if clip == "clip" {
            return;
        }
        match number("duration[ms]", written) {
            Ok(thousandths) if thousandths >= 0.0 => {
                durations.insert(clip.into(), Seconds(thousandths / 1e3));
            }
            Ok(value) => {
                let trouble = Trouble::WrongTime { key: "duration[ms]", value: value.to_string() };
                gathering.refuse(place, Some(clip.into()), trouble);
            }
            Err(trouble) => gathering.refuse(place, Some(clip.into()), trouble),
        }
    });
    durations
}
