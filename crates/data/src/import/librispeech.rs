//! LibriSpeech: in every chapter's folder one `S-C.trans.txt` with a line for each `S-C-NNNN.flac`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused};
use super::trouble::{ImportError, Place, Trouble};
use super::walk::{Walk, folder_of, id_of, is_audio, name, preference};

/// How the lists end.
pub(super) const LIST: &str = ".trans.txt";

/// Reads any folder of the tree: all of it, one part, one speaker.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let (mut lists, mut sounds) = (Vec::new(), Sounds::default());
    for file in Walk::new(path) {
        match file {
            Ok(file) if name(&file).ends_with(LIST) => lists.push(file),
            Ok(file) if is_audio(&file) => sounds.add(file),
            Ok(_) => {}
            Err(blocked) => gathering.blocked(blocked),
        }
    }
    if lists.is_empty() {
        return Err(ImportError::NotThis { path: path.into(), format: Format::LibriSpeech });
    }
    for list in lists {
        let folder = folder_of(&list).to_path_buf();
        gathering.side_list(&list, |gathering, place, line| chapter_line(gathering, place, line, &folder, &mut sounds));
    }
    sounds.report_unnamed(gathering);
    Ok(())
}

fn chapter_line(gathering: &mut Gathering<'_>, place: Place, line: &str, folder: &Path, sounds: &mut Sounds) {
    let (id, text) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let audio = match sounds.claim(&folder.join(id)) {
        Some(found) => gathering.audio_folder(folder).join(found.file_name().unwrap_or_default()),
        None => gathering.audio_folder(folder).join(format!("{id}.flac")),
    };
    let speaker = speaker(id, '-');
    gathering
        .take(place, Ok::<_, Refused>(Draft { id: id.into(), audio, text: text.into(), speaker, ..Draft::default() }));
}

/// The speaker, with whom every id of these corpora begins.
pub(super) fn speaker(id: &str, separator: char) -> Option<String> {
    id.split_once(separator).map(|(speaker, _)| speaker.into())
}

/// The audio files of a tree, by their paths without endings.
#[derive(Default)]
pub(super) struct Sounds {
    files: Vec<PathBuf>,
    by_stem: HashMap<PathBuf, usize>,
    claimed: Vec<bool>,
}

impl Sounds {
    /// Adds a file; of two with the same name but for the ending, the preferred one counts.
    pub(super) fn add(&mut self, file: PathBuf) {
        let index = self.by_stem.entry(file.with_extension("")).or_insert(self.files.len());
        if self.files.get(*index).is_some_and(|known| preference(&file) < preference(known)) {
            *index = self.files.len();
        }
        self.files.push(file);
        self.claimed.push(false);
    }

    /// The file of that path, whatever its ending, which from now on has a text.
    pub(super) fn claim(&mut self, stem: &Path) -> Option<&Path> {
        let &index = self.by_stem.get(stem)?;
        self.claimed[index] = true;
        Some(&self.files[index])
    }

    /// Notes the files that no text belongs to.
    pub(super) fn report_unnamed(self, gathering: &mut Gathering<'_>) {
        let stems = self.by_stem;
        for (index, file) in self.files.iter().enumerate() {
            // A second file of the same name shares the text of the one that counts.
            let first = stems.get(&file.with_extension("")).copied().unwrap_or(index);
            if !self.claimed[first] {
                let id = id_of(Path::new(&name(file)), Path::new(""));
                gathering.refuse_file(file, Some(id), Trouble::NoText);
            }
        }
    }
}
