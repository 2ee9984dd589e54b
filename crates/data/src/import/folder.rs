//! A folder of audio files, each with what is said in a `.txt` or `.lab` file of the same name beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused};
use super::libritts::read_texts;
use super::trouble::{ImportError, Place, Trouble};
use super::walk::{Walk, ending, id_of, is_audio, name, preference};

/// Endings of texts; of two beside the same audio the first counts.
const TEXTS: [&str; 2] = ["txt", "lab"];

/// Whether a file is a text, judged by its name.
pub(super) fn is_text(file: &Path) -> bool {
    TEXTS.contains(&ending(file).as_str())
}

/// Reads a folder and what is below it.
///
/// The sub-folders are the speakers where every audio file lies in a folder of the given folder, and there are several
/// of those; in any other arrangement folders may mean anything.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let (mut sounds, mut texts) = (Vec::new(), BTreeMap::new());
    for file in Walk::new(path) {
        match file {
            Ok(file) if is_audio(&file) => sounds.push(file),
            Ok(file) if is_text(&file) => add_text(&mut texts, file),
            Ok(_) => {}
            Err(blocked) => gathering.blocked(blocked),
        }
    }
    if sounds.is_empty() {
        return Err(ImportError::NotThis { path: path.into(), format: Format::Folder });
    }
    // Of two that differ in their ending alone the preferred one comes first, and the other is a duplicate.
    sounds.sort_by_cached_key(|file| (file.with_extension(""), preference(file)));
    let by_speaker = in_several_folders(&sounds, path);
    let files: Vec<PathBuf> = texts.values().map(|text| text.file.clone()).collect();
    for (text, read) in texts.values_mut().zip(read_texts(&files)) {
        text.read = Some(read);
    }
    for audio in sounds {
        let text = texts.get_mut(&audio.with_extension("")).map_or(Err(Trouble::NoText), Text::used);
        let speaker = by_speaker.then(|| audio.parent().map(name)).flatten();
        take(gathering, audio, text, speaker);
    }
    for text in texts.into_values().filter(|text| !text.used) {
        let trouble = Trouble::NoAudio("no audio file of the same name lies beside it".into());
        gathering.refuse_file(&text.file, None, trouble);
    }
    Ok(())
}

fn take(gathering: &mut Gathering<'_>, audio: PathBuf, text: Result<String, Trouble>, speaker: Option<String>) {
    let id = id_of(&audio, &gathering.root);
    let place = Place { file: audio.clone(), line: None };
    let draft = match text {
        Ok(text) => Ok(Draft { id, audio, text, speaker, ..Draft::default() }),
        Err(trouble) => Err(Refused(Some(id), trouble)),
    };
    gathering.take(place, draft);
}

/// A text and whether some audio belongs to it.
struct Text {
    file: PathBuf,
    read: Option<Result<String, Trouble>>,
    used: bool,
}

impl Text {
    fn used(&mut self) -> Result<String, Trouble> {
        self.used = true;
        self.read.clone().unwrap_or(Err(Trouble::NoText))
    }
}

/// Keeps a text under its path without the ending, unless the better one is there.
fn add_text(texts: &mut BTreeMap<PathBuf, Text>, file: PathBuf) {
    let better = |known: &Text| ending(&file) == TEXTS[0] && ending(&known.file) != TEXTS[0];
    let stem = file.with_extension("");
    if texts.get(&stem).is_none_or(better) {
        texts.insert(stem, Text { file, read: None, used: false });
    }
}

fn in_several_folders(sounds: &[PathBuf], root: &Path) -> bool {
    let one_below = sounds.iter().all(|file| file.parent().and_then(Path::parent) == Some(root));
    one_below && sounds.iter().any(|file| file.parent() != sounds[0].parent())
}
