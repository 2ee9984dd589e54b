//! Describes a folder of sounds or texts that nothing joins, with what to do: the commonest first mistake.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plimsoll_core::counted;

use super::error::ImportError;
use super::lines::Lines;
use super::tables;
use super::walk::{Walk, ending, is_audio, is_text, name};

/// Extensions of sounds that are not read.
const UNREAD: [&str; 14] =
    ["sph", "wma", "amr", "3gp", "ac3", "dts", "ape", "wv", "spx", "gsm", "mp2", "avi", "flv", "wmv"];

/// Files of a folder, as far as they matter for a corpus.
#[derive(Default)]
pub(super) struct Files {
    /// Number of sounds for each extension.
    sounds: BTreeMap<String, usize>,
    /// Number of sounds that are not read, for each extension.
    unread: BTreeMap<String, usize>,
    texts: usize,
    /// Number of all files.
    count: usize,
    first_sound: Option<PathBuf>,
    first_text: Option<PathBuf>,
    /// First table that may be meant as the list.
    table: Option<PathBuf>,
}

impl Files {
    /// Looks at all files below a folder.
    pub(super) fn below(folder: &Path) -> Self {
        let mut files = Self::default();
        Walk::new(folder).filter_map(Result::ok).for_each(|file| files.add(&file));
        files
    }

    fn add(&mut self, file: &Path) {
        self.count += 1;
        if is_audio(file) {
            *self.sounds.entry(ending(file)).or_default() += 1;
            self.first_sound.get_or_insert_with(|| file.into());
        } else if is_text(file) {
            self.texts += 1;
            self.first_text.get_or_insert_with(|| file.into());
        } else if UNREAD.contains(&&*ending(file)) {
            *self.unread.entry(ending(file)).or_default() += 1;
        } else if tables::is_table(file) {
            self.table.get_or_insert_with(|| file.into());
        }
    }

    /// Says what is missing in the folder `path`; `None` where it has other files than sounds and texts alone.
    pub(super) fn problem(&self, path: &Path) -> Option<ImportError> {
        let problem = |found: String, advice: String| ImportError::NotReadable { path: path.into(), found, advice };
        let texts = counted(self.texts, "text file");
        match (self.sounds.is_empty(), self.texts) {
            (true, 0) if self.count == 0 => {
                let advice = "put sounds and their texts there, or give the folder or the list that has them";
                Some(problem("is an empty folder".into(), advice.into()))
            }
            (true, _) if !self.unread.is_empty() => {
                let texts = if self.texts > 0 { format!(" and {texts}") } else { String::new() };
                let found = format!("has {}, whose sound is not read,{texts}", kinds(&self.unread));
                Some(problem(
                    found.trim_end_matches(',').into(),
                    "convert each with `ffmpeg -i IN -ar 16000 OUT.flac`".into(),
                ))
            }
            (true, 0) => None,
            (true, _) => Some(problem(
                format!("has {texts} and no sounds"),
                "put NAME.wav or another sound beside each NAME.txt, or write a manifest.jsonl with `audio_filepath` and `text`"
                    .into(),
            )),
            (false, 0) => {
                let table = self.table.as_ref().map_or(String::new(), |table| match tables::description(table) {
                    Some(about) => format!(" beside them; the table `{}` {about}", name(table)),
                    None => format!(" beside them; `{}` is no list that is read", name(table)),
                });
                Some(problem(
                    format!("has {} and no texts{table}", kinds(&self.sounds)),
                    "put NAME.txt beside each sound, or write a manifest.jsonl with `audio_filepath` and `text`".into(),
                ))
            }
            (false, _) => {
                // Sounds and texts of equal names may lie in different folders.
                let within = |file: &Path| file.strip_prefix(path).unwrap_or(file).display().to_string();
                let example = |file: &Option<PathBuf>| file.as_deref().map(within).unwrap_or_default();
                Some(problem(
                    format!(
                        "has {} and {texts}, and no text lies beside a sound of its name: the first are `{}` and `{}`",
                        kinds(&self.sounds),
                        example(&self.first_sound),
                        example(&self.first_text),
                    ),
                    "give each sound its text in a file of the same name beside it, or write a manifest.jsonl with \
                     `audio_filepath` and `text`"
                        .into(),
                ))
            }
        }
    }
}

/// Counts files, with their kinds.
fn kinds(counts: &BTreeMap<String, usize>) -> String {
    let kinds: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {}", kind.to_uppercase())).collect();
    let ending = if counts.values().sum::<usize>() == 1 { "file" } else { "files" };
    match &*kinds {
        [all @ .., last] if !all.is_empty() => format!("{} and {last} {ending}", all.join(", ")),
        _ => format!("{} {ending}", kinds.concat()),
    }
}

/// Describes a single file that is no list: a sound, a text or a spreadsheet. `None` for any other.
pub(super) fn single(path: &Path) -> Option<ImportError> {
    let problem = |found: &str, advice: &str| {
        Some(ImportError::NotReadable { path: path.into(), found: found.into(), advice: advice.into() })
    };
    if is_audio(path) || UNREAD.contains(&&*ending(path)) {
        return problem("is one sound", "give the folder of sounds with their texts, or a list");
    }
    if ["xlsx", "xls", "ods"].contains(&&*ending(path)) {
        return problem("is a spreadsheet", "save it as CSV, with the columns `file_name` and `text`");
    }
    if is_text(path) {
        let has_bar = Lines::open(path).ok()?.next()?.1.is_ok_and(|line| line.contains('|'));
        return match has_bar {
            true => problem("is a text file with `|` in its lines", "call it metadata.csv if they are `id|text`"),
            false => problem("is a text file", "give the folder of sounds with their texts, or a list"),
        };
    }
    None
}
