//! Builds a listing from the utterances of any layout: validates them and keeps their ids unique.

use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::entries::Entries;
use super::error::ImportError;
use super::format::Format;
use super::lines::{JsonItems, Line, Lines};
use super::listing::{Entry, ImportOptions};
use super::walk::{Unreadable, folder_of};
use crate::issue::{Issue, IssueKind, SourceLocation};
use crate::table::Piece;

/// Largest text of an utterance, in bytes. An hour of speech has a few hundred thousand bytes of text, also in scripts
/// with three bytes a character.
pub(super) const MAX_TEXT_BYTES: usize = 1 << 20;

/// Largest id and largest path, in bytes. Linux accepts no longer path.
pub(super) const MAX_NAME_BYTES: usize = 4096;

/// Largest number of issues that are kept; further issues are only counted. A million issues take a few hundred
/// megabytes.
const MAX_ISSUES: usize = 1_000_000;

/// Number of utterances of a piece whose ids are looked up together.
const AT_ONCE: usize = 32;

/// Longest time of an utterance in seconds, and latest start: three years. What is longer is a mistake of the list.
pub(super) const MAX_SECONDS: f64 = 1e8;

/// Largest quotation of a list in a message, in characters.
const MAX_QUOTE_CHARS: usize = 200;

/// Utterance as read from a list, not yet validated.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) id: String,
    pub(super) audio: PathBuf,
    pub(super) offset: Seconds,
    pub(super) duration: Option<Seconds>,
    /// Whether the list has the key of the duration without a value.
    pub(super) has_null_duration: bool,
    pub(super) text: String,
    pub(super) speaker: Option<String>,
    pub(super) language: Option<String>,
    pub(super) rate: Option<u32>,
    pub(super) resampled: Option<u32>,
}

/// Builder of a listing.
pub(super) struct ListingBuilder<'a> {
    /// Folder of the corpus.
    pub(super) root: PathBuf,
    format: Format,
    options: &'a ImportOptions,
    entries: Entries,
    duplicates: Vec<Entry>,
    issues: Vec<Issue>,
    more_issues: usize,
}

/// Lines of a list that a thread has parsed: utterances that are written as usual, and other lines in their places.
#[derive(Debug, Default)]
pub(super) struct ParsedPiece {
    pub(super) piece: Piece,
    /// Number of the line of each utterance.
    pub(super) lines: Vec<u32>,
    /// Number of utterances before each other line, number of the line, and what it holds.
    others: Vec<(usize, usize, Result<Draft, Issue>)>,
}

impl ParsedPiece {
    /// Adds a line that is not written as usual.
    pub(super) fn add_other(&mut self, line: usize, draft: Result<Draft, Issue>) {
        self.others.push((self.lines.len(), line, draft));
    }
}

/// Import whose utterances are in a table.
#[derive(Debug)]
pub(crate) struct Imported {
    pub(crate) format: Format,
    pub(crate) root: PathBuf,
    pub(crate) entries: Entries,
    pub(crate) duplicates: Vec<Entry>,
    pub(crate) issues: Vec<Issue>,
    pub(crate) more_issues: usize,
}

impl<'a> ListingBuilder<'a> {
    pub(super) fn new(format: Format, path: &Path, options: &'a ImportOptions) -> Self {
        let root = if path.is_dir() { path } else { folder_of(path) }.to_path_buf();
        Self { root, format, options, entries: Entries::default(), duplicates: vec![], issues: vec![], more_issues: 0 }
    }

    /// Makes room for a number of utterances.
    pub(super) fn reserve(&mut self, count: usize) {
        self.entries.reserve(count);
    }

    /// Returns the options of the import.
    pub(super) fn options(&self) -> &'a ImportOptions {
        self.options
    }

    /// Returns the folder that relative audio paths of a list in `folder` start from.
    pub(super) fn audio_folder(&self, folder: &Path) -> PathBuf {
        match &self.options.audio_root {
            Some(audio) => audio.join(folder.strip_prefix(&self.root).unwrap_or(Path::new(""))),
            None => folder.into(),
        }
    }

    /// Returns the audio folder of a layout that keeps its audio in a subfolder `name`. `audio_root` may name the
    /// subfolder itself.
    pub(super) fn named_audio_folder(&self, name: &str, folder: &Path) -> PathBuf {
        let around = self.audio_folder(folder);
        let within = around.join(name);
        if self.options.audio_root.is_some() && !within.is_dir() { around } else { within }
    }

    /// Calls `read` for every line of a required list.
    pub(super) fn read_list(
        &mut self,
        file: &Path,
        read: impl FnMut(&mut Self, SourceLocation, &str),
    ) -> Result<(), ImportError> {
        let lines = Lines::open(file).map_err(|source| ImportError::Unreadable { file: file.into(), source })?;
        self.read_all(file, lines, read);
        Ok(())
    }

    /// Calls `read` for every item of a required JSON list: of JSON lines, or of one array.
    pub(super) fn read_json_list(
        &mut self,
        file: &Path,
        read: impl FnMut(&mut Self, SourceLocation, &str),
    ) -> Result<(), ImportError> {
        let items = JsonItems::open(file).map_err(|source| ImportError::Unreadable { file: file.into(), source })?;
        self.read_all(file, items, read);
        Ok(())
    }

    /// Calls `read` for every line of an optional list, or of one of several lists. A list that cannot be opened is an
    /// issue.
    pub(super) fn read_optional_list(&mut self, file: &Path, read: impl FnMut(&mut Self, SourceLocation, &str)) {
        match Lines::open(file) {
            Ok(lines) => self.read_all(file, lines, read),
            Err(error) => self.add_unreadable((file.into(), error)),
        }
    }

    /// Calls `read` for every item of one of several JSON lists. A list that cannot be opened is an issue.
    pub(super) fn read_optional_json_list(&mut self, file: &Path, read: impl FnMut(&mut Self, SourceLocation, &str)) {
        match JsonItems::open(file) {
            Ok(items) => self.read_all(file, items, read),
            Err(error) => self.add_unreadable((file.into(), error)),
        }
    }

    fn read_all(
        &mut self,
        file: &Path,
        lines: impl Iterator<Item = Line>,
        mut read: impl FnMut(&mut Self, SourceLocation, &str),
    ) {
        for (line, text) in lines {
            let location = SourceLocation { file: file.into(), line: Some(line) };
            match text {
                Ok(text) => read(self, location, &text),
                Err(kind) => self.add_issue(location, None, kind),
            }
        }
    }

    /// Adds an utterance, or the issue that took its place. An issue without a location gets `location`.
    pub(super) fn add(&mut self, location: SourceLocation, draft: Result<Draft, Issue>) {
        match draft.and_then(validated) {
            Ok(draft) => self.add_entry(location, draft),
            Err(issue) => self.add_issue(issue.location.unwrap_or(location), issue.id, issue.kind),
        }
    }

    /// Adds utterances of one list whose duration is null.
    ///
    /// A list that gives durations says with null that one is unknown, and its audio may hold more than the utterance.
    /// In a list without durations, null says no more than a missing key: the audio is read to its end.
    pub(super) fn add_without_duration(&mut self, drafts: Vec<(SourceLocation, Draft)>) {
        let is_known_elsewhere = self.entries.has_durations();
        let is_sorted = is_known_elsewhere || drafts.is_empty();
        for (location, draft) in drafts {
            let unknown = Issue::for_utterance(draft.id.clone(), IssueKind::UnknownDuration);
            self.add(location, if is_known_elsewhere { Err(unknown) } else { Ok(draft) });
        }
        if !is_sorted {
            self.entries.sort_by_line();
        }
    }

    fn add_entry(&mut self, location: SourceLocation, draft: Draft) {
        let Draft { id, audio, offset, duration, text, speaker, language, rate, resampled, .. } = draft;
        let speaker = non_blank(speaker).or_else(|| self.options.speaker.clone());
        let language = non_blank(language).or_else(|| self.options.language.clone());
        // `a.wav` beside a list in the working folder, not `./a.wav`.
        let audio = audio.strip_prefix(".").map_or(audio.clone(), Path::to_path_buf);
        let entry = Entry { id, audio, offset, duration, text, speaker, language, rate, resampled, location };
        if let Err(repeated) = self.entries.push(entry) {
            self.add_duplicate(repeated);
        }
    }

    fn add_duplicate(&mut self, (first, entry): (SourceLocation, Box<Entry>)) {
        self.add_issue(entry.location.clone(), Some(entry.id.clone()), IssueKind::DuplicateId(first));
        if self.duplicates.len() < MAX_ISSUES {
            self.duplicates.push(*entry);
        }
    }

    /// Adds the lines of a piece of `file`. `keep` gets the lines that are not written as usual, and returns those to add
    /// now.
    pub(super) fn add_piece(
        &mut self,
        file: &Path,
        parsed: ParsedPiece,
        mut keep: impl FnMut(SourceLocation, Result<Draft, Issue>) -> Option<(SourceLocation, Result<Draft, Issue>)>,
    ) {
        let ParsedPiece { piece: Piece { records, rows, names }, lines, others } = parsed;
        let added = self.entries.add_piece(records, &names);
        let number = self.entries.file(file);
        let mut others = others.into_iter().peekable();
        let last = (rows.len(), None);
        let piece_rows = &*rows;
        let rows = rows.iter().zip(&lines).map(Some).enumerate();
        for (index, row) in rows.chain([last]) {
            if index % AT_ONCE == 0 {
                self.entries.expect(&piece_rows[index..piece_rows.len().min(index + AT_ONCE)]);
            }
            while let Some((_, line, draft)) = others.next_if(|(before, ..)| *before == index) {
                let location = SourceLocation { file: file.into(), line: Some(line) };
                if let Some((location, draft)) = keep(location, draft) {
                    self.add(location, draft);
                }
            }
            let Some((row, &line)) = row else { continue };
            if let Err(repeated) = self.entries.push_piece_row(&added, row, (number, line)) {
                self.add_duplicate(repeated);
            }
        }
    }

    /// Adds an issue with the location of a line.
    pub(super) fn add_issue(&mut self, location: SourceLocation, id: Option<String>, kind: IssueKind) {
        if self.issues.len() == MAX_ISSUES {
            self.more_issues += 1;
            return;
        }
        let id = non_blank(id).map(|id| shortened(&id));
        self.issues.push(Issue { location: Some(location), id, kind });
    }

    /// Adds an issue whose location is a whole file.
    pub(super) fn add_file_issue(&mut self, file: &Path, id: Option<String>, kind: IssueKind) {
        self.add_issue(SourceLocation { file: file.into(), line: None }, id, kind);
    }

    /// Adds an issue for a file or folder that cannot be opened.
    pub(super) fn add_unreadable(&mut self, (path, error): Unreadable) {
        self.add_file_issue(&path, None, IssueKind::Unreadable(error.to_string()));
    }

    /// Returns the listing. Fails where there is neither an entry nor an issue; `path` is for the message.
    pub(super) fn finish(self, path: &Path) -> Result<Imported, ImportError> {
        let Self { root, format, mut entries, duplicates, issues, more_issues, .. } = self;
        entries.finish();
        if entries.len() == 0 && issues.is_empty() {
            return Err(ImportError::Empty(path.into()));
        }
        Ok(Imported { format, root, entries, duplicates, issues, more_issues })
    }
}

/// Returns the draft with a trimmed id and a text of one line, or an issue for its first fault.
fn validated(draft: Draft) -> Result<Draft, Issue> {
    let id = draft.id.trim().to_owned();
    let text = one_line(&draft.text);
    let longest = id.len().max(draft.audio.as_os_str().len());
    let kind = if id.is_empty() {
        Some(IssueKind::NoId)
    } else if longest > MAX_NAME_BYTES {
        Some(IssueKind::FieldTooLong { field: "name", max_bytes: MAX_NAME_BYTES })
    } else if draft.audio.as_os_str().is_empty() {
        Some(IssueKind::NoAudio("its path is empty".into()))
    } else if text.is_empty() {
        Some(IssueKind::NoText)
    } else if text.len() > MAX_TEXT_BYTES {
        Some(IssueKind::FieldTooLong { field: "text", max_bytes: MAX_TEXT_BYTES })
    } else {
        invalid_time("offset", Some(draft.offset)).or_else(|| invalid_time("duration", draft.duration))
    };
    match kind {
        Some(kind) => Err(Issue::for_utterance(id, kind)),
        None => Ok(Draft { id, text, ..draft }),
    }
}

fn invalid_time(key: &'static str, time: Option<Seconds>) -> Option<IssueKind> {
    let Seconds(value) = time?;
    let is_valid = (0.0..=MAX_SECONDS).contains(&value);
    (!is_valid).then(|| IssueKind::InvalidTime { key, value: format!("{value:?}") })
}

/// Joins the trimmed lines of the text by spaces.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// Returns the trimmed name; `None` for a blank name.
fn non_blank(name: Option<String>) -> Option<String> {
    non_blank_part(name.as_deref()).map(str::to_owned)
}

/// Returns the trimmed name; `None` for a blank name.
pub(super) fn non_blank_part(name: Option<&str>) -> Option<&str> {
    name.map(str::trim).filter(|name| !name.is_empty())
}

/// Returns the beginning of a text of any length, to be quoted in a message.
pub(super) fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}
