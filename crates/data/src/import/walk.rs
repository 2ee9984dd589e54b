//! Folders, walked in the order of their names.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Endings of audio files.
const AUDIO: [&str; 6] = ["wav", "flac", "mp3", "ogg", "oga", "opus"];

/// The ending of a file without the dot, in small letters.
pub(super) fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Whether a file is audio, judged by its name.
pub(super) fn is_audio(path: &Path) -> bool {
    AUDIO.contains(&ending(path).as_str())
}

/// Which to take first of files that differ in their ending alone: the order above.
pub(super) fn preference(path: &Path) -> usize {
    AUDIO.iter().position(|&known| known == ending(path)).unwrap_or(AUDIO.len())
}

/// The name of a file, as far as it is text.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The path without `root` and without its ending, with slashes: an id for a file that has none.
pub(super) fn id_of(path: &Path, root: &Path) -> String {
    let within = path.strip_prefix(root).unwrap_or(path);
    let bare = if is_audio(within) { within.with_extension("") } else { within.into() };
    bare.to_string_lossy().replace('\\', "/")
}

/// The folder a list lies in.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Everything in one folder, sorted by name, without what is hidden.
pub(super) fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut children = Vec::new();
    for child in fs::read_dir(folder)? {
        let child = child?;
        if !child.file_name().as_encoded_bytes().starts_with(b".") {
            children.push(child.path());
        }
    }
    children.sort();
    Ok(children)
}

/// A folder that could not be read, and why.
pub(super) type Blocked = (PathBuf, io::Error);

/// All files below a folder.
///
/// Links are followed, because corpora are often linked into place; a folder is entered once, however many links lead
/// to it, so a link to a folder above ends there.
pub(super) struct Walk {
    /// What is still to be visited, the next one last.
    ahead: Vec<PathBuf>,
    entered: HashSet<PathBuf>,
}

impl Walk {
    pub(super) fn new(folder: &Path) -> Self {
        Self { ahead: vec![folder.into()], entered: HashSet::new() }
    }

    fn enter(&mut self, folder: &Path) -> io::Result<()> {
        if self.entered.insert(folder.canonicalize()?) {
            self.ahead.extend(children(folder)?.into_iter().rev());
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<PathBuf, Blocked>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = self.ahead.pop()?;
            if !next.is_dir() {
                return Some(Ok(next));
            }
            if let Err(error) = self.enter(&next) {
                return Some(Err((next, error)));
            }
        }
    }
}

/// Whether there are tables of Hugging Face, and no audio files beside them.
pub(super) fn holds_only_tables(path: &Path) -> bool {
    let files = || Walk::new(path).filter_map(Result::ok);
    files().any(|file| is_table(&file)) && !files().any(|file| is_audio(&file))
}

/// Whether a file is a table of Hugging Face, judged by its name.
pub(super) fn is_table(file: &Path) -> bool {
    ["parquet", "arrow"].contains(&ending(file).as_str())
}
