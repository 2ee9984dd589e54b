//! Walks folders in the order of names, and classifies files by name.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plimsoll_audio::{EXTENSIONS, is_audio_name};
use unicode_normalization::UnicodeNormalization;

/// Returns the extension without the dot, in lower case.
pub(super) fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Extensions of text files. Where an audio file has text files with both extensions, the first extension counts.
pub(super) const TEXTS: [&str; 2] = ["txt", "lab"];

/// Returns whether a file is a text, judged by its extension.
pub(super) fn is_text(file: &Path) -> bool {
    TEXTS.contains(&ending(file).as_str())
}

/// Returns whether a file is audio, judged by its extension.
pub(super) fn is_audio(path: &Path) -> bool {
    is_audio_name(path)
}

/// Returns the rank of the extension in [`EXTENSIONS`]. Of files that differ only in the extension, the lowest rank counts.
pub(super) fn preference(path: &Path) -> usize {
    EXTENSIONS.iter().position(|&known| known == ending(path)).unwrap_or(EXTENSIONS.len())
}

/// Returns the file name; bytes that are not UTF-8 are replaced.
pub(super) fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Makes an id for a file: its path relative to `root`, without the extension, with slashes.
pub(super) fn id_of(path: &Path, root: &Path) -> String {
    let within = path.strip_prefix(root).unwrap_or(path);
    let bare = if is_audio(within) { within.with_extension("") } else { within.into() };
    bare.to_string_lossy().replace('\\', "/")
}

/// Returns the path with composed characters (Unicode's NFC). Equal names can be written with composed characters in a
/// list and with separate accents on a disk.
pub(super) fn composed(path: &Path) -> PathBuf {
    match path.to_str() {
        Some(text) if !text.is_ascii() => text.nfc().collect::<String>().into(),
        _ => path.into(),
    }
}

/// Returns the folder around a file.
pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Lists the files and folders in a folder, sorted by name, without hidden ones.
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

/// Removes compressed files whose plain form is there, too: both hold one list.
pub(super) fn without_copies(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    let plain: HashSet<PathBuf> = files.iter().cloned().collect();
    files.retain(|file| ending(file) != "gz" || !plain.contains(&file.with_extension("")));
    files
}

/// Path that cannot be read, and the error.
pub(super) type Unreadable = (PathBuf, io::Error);

/// Iterator over all files below a folder.
///
/// Links are followed, because corpora are often linked into place. Each folder is entered once, however many links
/// lead to it, so a link to a parent folder does not loop.
pub(super) struct Walk {
    /// Paths still to be visited; the last path is next.
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
    type Item = Result<PathBuf, Unreadable>;

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
