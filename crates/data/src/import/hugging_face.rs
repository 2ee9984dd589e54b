//! Reads Hugging Face audio folders: `metadata.jsonl` or `metadata.csv` beside the audio, in one folder or one for each
//! split.

use std::path::{Path, PathBuf};

use super::builder::{Draft, ListingBuilder};
use super::csv::Rows;
use super::error::ImportError;
use super::format::Format;
use super::json::Object;
use super::lines::Lines;
use super::shards::{ARROW, PARQUET, has_extension, shards};
use super::walk::{children, ending, folder_of, id_of};
use super::{arrow, parquet};
use crate::issue::{Issue, IssueKind, SourceLocation};

/// File names of the list in a folder. Where both files exist, their content is equal, so only the first is read.
const LISTS: [&str; 2] = ["metadata.jsonl", "metadata.csv"];

/// Keys or columns that can hold the audio file; the first that exists counts.
pub(super) const FILE: [&str; 2] = ["file_name", "audio_file_name"];

/// Keys or columns that can hold the text; the first that exists counts.
const TEXT: [&str; 5] = ["transcription", "text", "sentence", "normalized_text", "transcript"];
/// Keys or columns that can hold the speaker; the first that exists counts.
const SPEAKER: [&str; 3] = ["speaker", "speaker_id", "client_id"];
/// Keys or columns that can hold the language; the first that exists counts.
const LANGUAGE: [&str; 3] = ["language", "locale", "lang"];

/// Adds the utterances of a Hugging Face audio folder to `builder`. `path` is one list, or a folder whose lists are in
/// it or in its subfolders.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let lists = lists(path);
    if !shards(path, PARQUET).is_empty() && (lists.is_empty() || has_extension(path, PARQUET)) {
        return parquet::read(builder, path);
    }
    if !arrow::files(path).is_empty() && (lists.is_empty() || has_extension(path, ARROW)) {
        return arrow::read(builder, path);
    }
    if lists.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::HuggingFace });
    }
    for list in lists {
        if ending(&list) == "csv" {
            read_csv(builder, &list);
        } else {
            let folders = Folders::new(builder, &list);
            builder.read_optional_json_list(&list, |builder, location, line| {
                builder.add(location, json_line(line, &folders));
            });
        }
    }
    Ok(())
}

/// Returns `path` itself where it is a file, else the lists in the folder `path` and in its subfolders.
pub(super) fn lists(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.into()];
    }
    let below = children(path).unwrap_or_default().into_iter().filter(|child| child.is_dir());
    let folders = std::iter::once(path.to_path_buf()).chain(below);
    folders.filter_map(|folder| LISTS.iter().map(|list| folder.join(list)).find(|list| list.is_file())).collect()
}

/// Folders that are put before the file names in a list, to make the ids and the audio paths of its utterances.
struct Folders {
    /// Folder of the list, relative to the folder of the corpus. Ids of utterances begin with it.
    within: PathBuf,
    /// Folder that the file names in the list start from.
    audio: PathBuf,
}

impl Folders {
    fn new(builder: &ListingBuilder<'_>, list: &Path) -> Self {
        let folder = folder_of(list);
        let within = folder.strip_prefix(&builder.root).unwrap_or(Path::new("")).to_path_buf();
        Self { within, audio: builder.audio_folder(folder) }
    }

    fn draft(
        &self,
        file: &str,
        text: String,
        speaker: Option<String>,
        language: Option<String>,
    ) -> Result<Draft, Issue> {
        if file.trim().is_empty() {
            return Err(IssueKind::NoAudio("its path is empty".into()).into());
        }
        let id = id_of(&self.within.join(file), Path::new(""));
        Ok(Draft { id, audio: self.audio.join(file), text, speaker, language, ..Draft::default() })
    }
}

fn json_line(line: &str, folders: &Folders) -> Result<Draft, Issue> {
    let object = Object::read(line)?;
    let file = object.required_text(&FILE)?;
    let with_id = |kind| Issue::for_utterance(&file, kind);
    let text = object.required_text(&TEXT).map_err(with_id)?;
    let (speaker, language) = (object.text(&SPEAKER).map_err(with_id)?, object.text(&LANGUAGE).map_err(with_id)?);
    folders.draft(&file, text, speaker, language)
}

fn read_csv(builder: &mut ListingBuilder<'_>, list: &Path) {
    let folders = Folders::new(builder, list);
    let mut rows = match Lines::open(list) {
        Ok(lines) => Rows::new(lines),
        Err(error) => return builder.add_unreadable((list.into(), error)),
    };
    let location = |line| SourceLocation { file: list.into(), line: Some(line) };
    let Some((line, header)) = rows.next() else { return };
    let header = match header.and_then(Header::read) {
        Ok(header) => header,
        Err(kind) => return builder.add_issue(location(line), None, kind),
    };
    for (line, cells) in rows {
        let draft = cells.map_err(Issue::from).and_then(|cells| header.utterance(cells, &folders));
        builder.add(location(line), draft);
    }
}

/// Number of columns of a table, and the indices of the columns that are read.
struct Header {
    columns: usize,
    file: usize,
    text: usize,
    speaker: Option<usize>,
    language: Option<usize>,
}

impl Header {
    fn read(cells: Vec<String>) -> Result<Self, IssueKind> {
        let column = |names: &[&str]| names.iter().find_map(|name| cells.iter().position(|cell| cell.trim() == *name));
        Ok(Self {
            columns: cells.len(),
            file: column(&FILE).ok_or(IssueKind::MissingColumn(FILE[0]))?,
            text: column(&TEXT).ok_or(IssueKind::MissingColumn(TEXT[0]))?,
            speaker: column(&SPEAKER),
            language: column(&LANGUAGE),
        })
    }

    fn utterance(&self, cells: Vec<String>, folders: &Folders) -> Result<Draft, Issue> {
        if cells.len() != self.columns {
            let expected = format!("{} columns as in the header", self.columns);
            return Err(IssueKind::WrongColumnCount { expected, found: cells.len() }.into());
        }
        let cell = |column: usize| cells[column].clone();
        let (speaker, language) = (self.speaker.map(cell), self.language.map(cell));
        folders.draft(cells[self.file].trim(), cell(self.text), speaker, language)
    }
}
