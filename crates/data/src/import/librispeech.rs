//! Reads LibriSpeech: one `S-C.trans.txt` in every chapter folder, with a line for each `S-C-NNNN.flac`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::builder::{Draft, ListingBuilder};
use super::error::ImportError;
use super::format::Format;
use super::walk::{Walk, composed, folder_of, id_of, is_audio, name, preference};
use crate::issue::{Issue, IssueKind, SourceLocation};

/// Ending of the file name of a list.
pub(super) const LIST: &str = ".trans.txt";

/// Adds the utterances of any folder of a LibriSpeech tree to `builder`: the root, one part, one speaker or one
/// chapter.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let (mut lists, mut audio_files) = (Vec::new(), AudioFiles::default());
    for file in Walk::new(path) {
        match file {
            Ok(file) if name(&file).ends_with(LIST) => lists.push(file),
            Ok(file) if is_audio(&file) => audio_files.add(file),
            Ok(_) => {}
            Err(unreadable) => builder.add_unreadable(unreadable),
        }
    }
    if lists.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::LibriSpeech });
    }
    for list in lists {
        let folder = folder_of(&list).to_path_buf();
        builder.read_optional_list(&list, |builder, location, line| {
            chapter_line(builder, location, line, &folder, &mut audio_files);
        });
    }
    audio_files.add_textless(builder);
    Ok(())
}

fn chapter_line(
    builder: &mut ListingBuilder<'_>,
    location: SourceLocation,
    line: &str,
    folder: &Path,
    audio_files: &mut AudioFiles,
) {
    let (id, text) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let audio = match audio_files.claim(&folder.join(id)) {
        Some(found) => builder.audio_folder(folder).join(found.file_name().unwrap_or_default()),
        None => builder.audio_folder(folder).join(format!("{id}.flac")),
    };
    let speaker = speaker(id, '-');
    builder
        .add(location, Ok::<_, Issue>(Draft { id: id.into(), audio, text: text.into(), speaker, ..Draft::default() }));
}

/// Returns the speaker of a LibriSpeech or LibriTTS utterance: the part of `id` before the first `separator`; `None`
/// without a separator.
pub(super) fn speaker(id: &str, separator: char) -> Option<String> {
    id.split_once(separator).map(|(speaker, _)| speaker.into())
}

/// Audio files of a tree, found by their composed paths without extension.
#[derive(Default)]
pub(super) struct AudioFiles {
    files: Vec<PathBuf>,
    by_stem: HashMap<PathBuf, usize>,
    claimed: Vec<bool>,
}

impl AudioFiles {
    /// Adds an audio file. Of files that differ only in the extension, the file with the preferred extension counts.
    pub(super) fn add(&mut self, file: PathBuf) {
        let index = self.by_stem.entry(composed(&file.with_extension(""))).or_insert(self.files.len());
        if self.files.get(*index).is_some_and(|known| preference(&file) < preference(known)) {
            *index = self.files.len();
        }
        self.files.push(file);
        self.claimed.push(false);
    }

    /// Returns the file at path `stem` with any extension, and marks it as having a text; `None` if there is no such
    /// file.
    pub(super) fn claim(&mut self, stem: &Path) -> Option<&Path> {
        let &index = self.by_stem.get(&composed(stem))?;
        self.claimed[index] = true;
        Some(&self.files[index])
    }

    /// Adds an issue for every audio file without a text.
    pub(super) fn add_textless(self, builder: &mut ListingBuilder<'_>) {
        let stems = self.by_stem;
        for (index, file) in self.files.iter().enumerate() {
            // Files that differ only in the extension share the text of the preferred one.
            let first = stems.get(&composed(&file.with_extension(""))).copied().unwrap_or(index);
            if !self.claimed[first] {
                let id = id_of(Path::new(&name(file)), Path::new(""));
                builder.add_file_issue(file, Some(id), IssueKind::NoText);
            }
        }
    }
}
