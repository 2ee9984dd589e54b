//! Where all formats bring what they find: entries are checked, ids kept unique, problems noted.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::format::Format;
use super::lines::Lines;
use super::listing::{Entry, ImportOptions, Listing};
use super::trouble::{ImportError, Place, Problem, Trouble};
use super::walk::{Blocked, folder_of};

/// An hour of speech is some hundred thousand bytes of text, in scripts of three bytes a letter too.
pub(super) const TEXT_MOST: usize = 1 << 20;

/// Linux takes no longer path.
const NAME_MOST: usize = 4096;

/// So many problems take some hundred megabytes; the rest is counted.
const PROBLEMS_MOST: usize = 1_000_000;

/// What a message quotes of a line.
const QUOTE_MOST: usize = 200;

/// An utterance as a format read it, before anybody checked it.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) id: String,
    pub(super) audio: PathBuf,
    pub(super) offset: Seconds,
    pub(super) duration: Option<Seconds>,
    pub(super) text: String,
    pub(super) speaker: Option<String>,
    pub(super) language: Option<String>,
}

/// Why there is no draft, and of which utterance, where that is known.
pub(super) struct Refused(pub(super) Option<String>, pub(super) Trouble);

impl From<Trouble> for Refused {
    fn from(trouble: Trouble) -> Self {
        Self(None, trouble)
    }
}

/// A listing in the making.
pub(super) struct Gathering<'a> {
    /// The corpus's folder.
    pub(super) root: PathBuf,
    format: Format,
    options: &'a ImportOptions,
    entries: Vec<Entry>,
    problems: Vec<Problem>,
    more_problems: usize,
    /// Which entry has an id.
    ids: HashMap<String, usize>,
}

impl<'a> Gathering<'a> {
    pub(super) fn new(format: Format, path: &Path, options: &'a ImportOptions) -> Self {
        let root = if path.is_dir() { path } else { folder_of(path) }.to_path_buf();
        Self { root, format, options, entries: vec![], problems: vec![], more_problems: 0, ids: HashMap::new() }
    }

    /// Where the relative paths of a list in `folder` start.
    pub(super) fn audio_folder(&self, folder: &Path) -> PathBuf {
        match &self.options.audio_root {
            Some(audio) => audio.join(folder.strip_prefix(&self.root).unwrap_or(Path::new(""))),
            None => folder.into(),
        }
    }

    /// The same for corpora that keep their audio in a folder of a known name; it may be left out of `audio_root`.
    pub(super) fn audio_folder_called(&self, name: &str, folder: &Path) -> PathBuf {
        let around = self.audio_folder(folder);
        let within = around.join(name);
        if self.options.audio_root.is_some() && !within.is_dir() { around } else { within }
    }

    /// Hands every line of a list that cannot be done without to `read`.
    pub(super) fn list(&mut self, file: &Path, read: impl FnMut(&mut Self, Place, &str)) -> Result<(), ImportError> {
        self.lines(file, read).map_err(|source| ImportError::Unreadable { file: file.into(), source })
    }

    /// The same for a list that is one of many or an extra: not opening is a problem.
    pub(super) fn side_list(&mut self, file: &Path, read: impl FnMut(&mut Self, Place, &str)) {
        if let Err(error) = self.lines(file, read) {
            self.blocked((file.into(), error));
        }
    }

    fn lines(&mut self, file: &Path, mut read: impl FnMut(&mut Self, Place, &str)) -> io::Result<()> {
        for (line, text) in Lines::open(file)? {
            let place = Place { file: file.into(), line: Some(line) };
            match text {
                Ok(text) => read(self, place, &text),
                Err(trouble) => self.refuse(place, None, trouble),
            }
        }
        Ok(())
    }

    /// Takes an utterance, or the reason why there is none.
    pub(super) fn take(&mut self, place: Place, draft: Result<Draft, Refused>) {
        match draft.and_then(checked) {
            Ok(draft) => self.keep(place, draft),
            Err(Refused(id, trouble)) => self.refuse(place, id, trouble),
        }
    }

    fn keep(&mut self, place: Place, draft: Draft) {
        if let Some(&first) = self.ids.get(&draft.id) {
            let first = self.entries[first].place.clone();
            return self.refuse(place, Some(draft.id), Trouble::DuplicateId(first));
        }
        self.ids.insert(draft.id.clone(), self.entries.len());
        let Draft { id, audio, offset, duration, text, speaker, language } = draft;
        let speaker = named(speaker).or_else(|| self.options.speaker.clone());
        let language = named(language).or_else(|| self.options.language.clone());
        // Beside a list in the working folder lies `a.wav`, which nobody calls `./a.wav`.
        let audio = audio.strip_prefix(".").map_or(audio.clone(), Path::to_path_buf);
        self.entries.push(Entry { id, audio, offset, duration, text, speaker, language, place });
    }

    /// Notes a problem.
    pub(super) fn refuse(&mut self, place: Place, id: Option<String>, trouble: Trouble) {
        if self.problems.len() == PROBLEMS_MOST {
            self.more_problems += 1;
            return;
        }
        let id = named(id).map(|id| clipped(&id));
        self.problems.push(Problem { place, id, trouble });
    }

    /// Notes a problem with a whole file.
    pub(super) fn refuse_file(&mut self, file: &Path, id: Option<String>, trouble: Trouble) {
        self.refuse(Place { file: file.into(), line: None }, id, trouble);
    }

    /// Notes a file or folder that could not be opened.
    pub(super) fn blocked(&mut self, (path, error): Blocked) {
        self.refuse_file(&path, None, Trouble::Unreadable(error.to_string()));
    }

    /// What was gathered from `path`.
    pub(super) fn finish(self, path: &Path) -> Result<Listing, ImportError> {
        let Self { root, format, entries, problems, more_problems, .. } = self;
        if entries.is_empty() && problems.is_empty() {
            return Err(ImportError::Empty(path.into()));
        }
        Ok(Listing { format, root, entries, problems, more_problems })
    }
}

/// The draft in its final shape, or what is wrong with it whatever its format.
fn checked(draft: Draft) -> Result<Draft, Refused> {
    let id = draft.id.trim().to_owned();
    let text = one_line(&draft.text);
    let longest = id.len().max(draft.audio.as_os_str().len());
    let trouble = if id.is_empty() {
        Some(Trouble::NoId)
    } else if longest > NAME_MOST {
        Some(Trouble::TooLong { what: "name", most: NAME_MOST })
    } else if draft.audio.as_os_str().is_empty() {
        Some(Trouble::NoAudio("its path is empty".into()))
    } else if text.is_empty() {
        Some(Trouble::NoText)
    } else if text.len() > TEXT_MOST {
        Some(Trouble::TooLong { what: "text", most: TEXT_MOST })
    } else {
        wrong_time("offset", Some(draft.offset)).or_else(|| wrong_time("duration", draft.duration))
    };
    match trouble {
        Some(trouble) => Err(Refused(Some(id), trouble)),
        None => Ok(Draft { id, text, ..draft }),
    }
}

fn wrong_time(key: &'static str, time: Option<Seconds>) -> Option<Trouble> {
    let Seconds(value) = time?;
    let sound = value.is_finite() && value >= 0.0;
    (!sound).then(|| Trouble::WrongTime { key, value: value.to_string() })
}

/// The text without blanks around it and without breaks in it.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// A name that says something.
fn named(name: Option<String>) -> Option<String> {
    let name = name?;
    let bare = name.trim();
    (!bare.is_empty()).then(|| bare.to_owned())
}

/// The beginning of a text that may be of any length.
pub(super) fn clipped(text: &str) -> String {
    match text.char_indices().nth(QUOTE_MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}
