//! Audio folders of Hugging Face: `metadata.jsonl` or `metadata.csv` beside the audio, in one folder or in one a split.

use std::path::{Path, PathBuf};

use super::csv::Rows;
use super::format::Format;
use super::gathering::{Draft, Gathering, Refused};
use super::json::Object;
use super::lines::Lines;
use super::trouble::{ImportError, Place, Trouble};
use super::walk::{children, ending, folder_of, holds_only_tables, id_of, is_table};

/// What a folder's list may be called; where both are there, they say the same.
const LISTS: [&str; 2] = ["metadata.jsonl", "metadata.csv"];

/// What the audio file is called.
pub(super) const FILE: [&str; 2] = ["file_name", "audio_file_name"];

/// What the text may be called.
const TEXT: [&str; 5] = ["transcription", "text", "sentence", "normalized_text", "transcript"];
const SPEAKER: [&str; 3] = ["speaker", "speaker_id", "client_id"];
const LANGUAGE: [&str; 3] = ["language", "locale", "lang"];

/// Reads one list, or those of a folder and of the folders in it.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let lists = lists(path);
    if lists.is_empty() || is_table(path) {
        return Err(match holds_only_tables(path) {
            true => ImportError::Parquet(path.into()),
            false => ImportError::NotThis { path: path.into(), format: Format::HuggingFace },
        });
    }
    for list in lists {
        if ending(&list) == "csv" {
            read_csv(gathering, &list);
        } else {
            let folders = Folders::of(gathering, &list);
            gathering.side_list(&list, |gathering, place, line| gathering.take(place, json_line(line, &folders)));
        }
    }
    Ok(())
}

/// The lists that `path` is, or that lie in it and in the folders in it.
pub(super) fn lists(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.into()];
    }
    let below = children(path).unwrap_or_default().into_iter().filter(|child| child.is_dir());
    let folders = std::iter::once(path.to_path_buf()).chain(below);
    folders.filter_map(|folder| LISTS.iter().map(|list| folder.join(list)).find(|list| list.is_file())).collect()
}

/// Where a list's ids and paths start.
struct Folders {
    /// The list's folder, seen from the corpus's.
    within: PathBuf,
    audio: PathBuf,
}

impl Folders {
    fn of(gathering: &Gathering<'_>, list: &Path) -> Self {
        let folder = folder_of(list);
        let within = folder.strip_prefix(&gathering.root).unwrap_or(Path::new("")).to_path_buf();
        Self { within, audio: gathering.audio_folder(folder) }
    }

    fn draft(
        &self,
        file: &str,
        text: String,
        speaker: Option<String>,
        language: Option<String>,
    ) -> Result<Draft, Refused> {
        if file.trim().is_empty() {
            return Err(Trouble::NoAudio("its path is empty".into()).into());
        }
        let id = id_of(&self.within.join(file), Path::new(""));
        Ok(Draft { id, audio: self.audio.join(file), text, speaker, language, ..Draft::default() })
    }
}

fn json_line(line: &str, folders: &Folders) -> Result<Draft, Refused> {
    let object = Object::read(line)?;
    let file = object.need(&FILE)?;
    let named = |trouble| Refused(Some(file.clone()), trouble);
    let text = object.need(&TEXT).map_err(named)?;
    let (speaker, language) = (object.text(&SPEAKER).map_err(named)?, object.text(&LANGUAGE).map_err(named)?);
    folders.draft(&file, text, speaker, language)
}

fn read_csv(gathering: &mut Gathering<'_>, list: &Path) {
    let folders = Folders::of(gathering, list);
    let mut rows = match Lines::open(list) {
        Ok(lines) => Rows::new(lines),
        Err(error) => return gathering.blocked((list.into(), error)),
    };
    let place = |line| Place { file: list.into(), line: Some(line) };
    let Some((line, header)) = rows.next() else { return };
    let header = match header.and_then(Header::read) {
        Ok(header) => header,
        Err(trouble) => return gathering.refuse(place(line), None, trouble),
    };
    for (line, cells) in rows {
        let draft = cells.map_err(Refused::from).and_then(|cells| header.utterance(cells, &folders));
        gathering.take(place(line), draft);
    }
}

/// Where the columns are.
struct Header {
    columns: usize,
    file: usize,
    text: usize,
    speaker: Option<usize>,
    language: Option<usize>,
}

impl Header {
    fn read(cells: Vec<String>) -> Result<Self, Trouble> {
        let column = |names: &[&str]| names.iter().find_map(|name| cells.iter().position(|cell| cell.trim() == *name));
        Ok(Self {
            columns: cells.len(),
            file: column(&FILE).ok_or(Trouble::MissingColumn(FILE[0]))?,
            text: column(&TEXT).ok_or(Trouble::MissingColumn(TEXT[0]))?,
            speaker: column(&SPEAKER),
            language: column(&LANGUAGE),
        })
    }

    fn utterance(&self, cells: Vec<String>, folders: &Folders) -> Result<Draft, Refused> {
        if cells.len() != self.columns {
            let expected = format!("{} columns as in the header", self.columns);
            return Err(Trouble::Columns { expected, found: cells.len() }.into());
        }
        let cell = |column: usize| cells[column].clone();
        let (speaker, language) = (self.speaker.map(cell), self.language.map(cell));
        folders.draft(cells[self.file].trim(), cell(self.text), speaker, language)
    }
}
