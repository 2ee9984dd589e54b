//! Reads a folder of audio files, each with its text beside it in a `.txt` or `.lab` file of equal name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::builder::{Draft, ListingBuilder};
use super::error::ImportError;
use super::format::Format;
use super::libritts::read_texts;
use super::unlisted::Files;
use super::walk::{TEXTS, Walk, composed, ending, id_of, is_audio, is_text, name, preference};
use crate::issue::{Issue, IssueKind, SourceLocation};

/// Adds the utterances of a folder and of everything below it to `builder`.
///
/// Subfolders are taken for speakers when every audio file lies in a direct subfolder and there are at least two
/// subfolders. In any other arrangement, speakers are unknown.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let (mut audio_files, mut texts) = (Vec::new(), BTreeMap::new());
    for file in Walk::new(path) {
        match file {
            Ok(file) if is_audio(&file) => audio_files.push(file),
            Ok(file) if is_text(&file) => add_text(&mut texts, file),
            Ok(_) => {}
            Err(unreadable) => builder.add_unreadable(unreadable),
        }
    }
    // A text that is a note on the corpus is no text of a sound.
    let has_text = |audio: &PathBuf| texts.contains_key(&composed(&audio.with_extension("")));
    if !audio_files.iter().any(has_text) {
        let problem = Files::below(path).problem(path);
        return Err(problem.unwrap_or(ImportError::WrongFormat { path: path.into(), format: Format::Folder }));
    }
    // Of files that differ only in their extension the preferred one comes first; the others become duplicates.
    audio_files.sort_by_cached_key(|file| (file.with_extension(""), preference(file)));
    let by_speaker = in_several_folders(&audio_files, path);
    let files: Vec<PathBuf> = texts.values().map(|text| text.file.clone()).collect();
    for (text, read) in texts.values_mut().zip(read_texts(&files)) {
        text.read = Some(read);
    }
    for audio in audio_files {
        let text = texts.get_mut(&composed(&audio.with_extension(""))).map_or(Err(IssueKind::NoText), Text::take);
        let speaker = by_speaker.then(|| audio.parent().map(name)).flatten();
        add_audio(builder, audio, text, speaker);
    }
    for text in texts.into_values().filter(|text| !text.used) {
        let kind = IssueKind::NoAudio("no audio file of the same name lies beside it".into());
        builder.add_file_issue(&text.file, None, kind);
    }
    Ok(())
}

fn add_audio(
    builder: &mut ListingBuilder<'_>,
    audio: PathBuf,
    text: Result<String, IssueKind>,
    speaker: Option<String>,
) {
    let id = id_of(&audio, &builder.root);
    let location = SourceLocation { file: audio.clone(), line: None };
    let draft = match text {
        Ok(text) => Ok(Draft { id, audio, text, speaker, ..Draft::default() }),
        Err(kind) => Err(Issue::for_utterance(id, kind)),
    };
    builder.add(location, draft);
}

/// Text file with its content once it is read, and a flag that is true if an audio file belongs to it.
struct Text {
    file: PathBuf,
    read: Option<Result<String, IssueKind>>,
    used: bool,
}

impl Text {
    fn take(&mut self) -> Result<String, IssueKind> {
        self.used = true;
        self.read.clone().unwrap_or(Err(IssueKind::NoText))
    }
}

/// Stores a text under its composed path without the extension, unless a text with a preferred extension is already stored.
fn add_text(texts: &mut BTreeMap<PathBuf, Text>, file: PathBuf) {
    let better = |known: &Text| ending(&file) == TEXTS[0] && ending(&known.file) != TEXTS[0];
    let stem = composed(&file.with_extension(""));
    if texts.get(&stem).is_none_or(better) {
        texts.insert(stem, Text { file, read: None, used: false });
    }
}

fn in_several_folders(audio_files: &[PathBuf], root: &Path) -> bool {
    let one_below = audio_files.iter().all(|file| file.parent().and_then(Path::parent) == Some(root));
    one_below && audio_files.iter().any(|file| file.parent() != audio_files[0].parent())
}
