//! Manifests: JSON lines with the keys that we and NeMo write, and what others call the same.

use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused};
use super::json::Object;
use super::trouble::{ImportError, Trouble};
use super::walk::folder_of;

/// What a folder's manifest may be called.
pub(super) const NAMES: [&str; 2] = ["manifest.jsonl", "manifest.json"];

/// What the audio file may be called; the first is ours.
pub(super) const AUDIO: [&str; 4] = ["audio_filepath", "audio_path", "audio", "wav"];

/// What the text may be called; the first is ours.
const TEXT: [&str; 5] = ["text", "sentence", "transcript", "transcription", "normalized_text"];

/// Reads a manifest, or a folder with one of the usual name.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let file = in_folder(path).ok_or(ImportError::NotThis { path: path.into(), format: Format::Manifest })?;
    let folder = gathering.audio_folder(folder_of(&file));
    gathering.list(&file, |gathering, place, line| gathering.take(place, utterance(line, &folder)))
}

/// The manifest that `path` is or holds.
pub(super) fn in_folder(path: &Path) -> Option<PathBuf> {
    if !path.is_dir() {
        return Some(path.into());
    }
    NAMES.iter().map(|name| path.join(name)).find(|file| file.is_file())
}

fn utterance(line: &str, folder: &Path) -> Result<Draft, Refused> {
    let object = Object::read(line)?;
    let id = object.text(&["id"])?.filter(|id| !id.trim().is_empty());
    let named = |trouble| Refused(id.clone(), trouble);
    let written = object.need(&AUDIO).map_err(named)?;
    if written.trim().is_empty() {
        return Err(named(Trouble::NoAudio("its path is empty".into())));
    }
    let offset = object.seconds("offset").map_err(named)?.unwrap_or_default();
    let draft = Draft {
        audio: folder.join(&written),
        offset,
        duration: object.seconds("duration").map_err(named)?,
        text: object.need(&TEXT).map_err(named)?,
        speaker: object.text(&["speaker", "speaker_id"]).map_err(named)?,
        language: object.text(&["lang", "language", "locale"]).map_err(named)?,
        // As our own manifests are read: what names the utterance is where it is.
        id: id.clone().unwrap_or(match offset {
            Seconds(0.0) => written,
            Seconds(offset) => format!("{written}@{offset}"),
        }),
    };
    Ok(draft)
}
