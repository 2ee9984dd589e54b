//! LibriTTS and LibriTTS-R: beside every `S_C_P_U.wav` its text, normalised and as it was printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::format::Format;
use super::gathering::{Draft, Gathering, Refused, TEXT_MOST};
use super::librispeech::{Sounds, speaker};
use super::lines::Lines;
use super::trouble::{ImportError, Place, Trouble};
use super::walk::{Walk, folder_of, is_audio, name};

/// How the texts end; of two for the same utterance the first counts.
pub(super) const TEXTS: [&str; 2] = [".normalized.txt", ".original.txt"];

/// Reads any folder of the tree: all of it, one part, one speaker.
pub(super) fn read(gathering: &mut Gathering<'_>, path: &Path) -> Result<(), ImportError> {
    let (mut texts, mut sounds) = (BTreeMap::new(), Sounds::default());
    for file in Walk::new(path) {
        match file {
            Ok(file) if is_audio(&file) => sounds.add(file),
            Ok(file) => add_text(&mut texts, file),
            Err(blocked) => gathering.blocked(blocked),
        }
    }
    if texts.is_empty() {
        return Err(ImportError::NotThis { path: path.into(), format: Format::LibriTts });
    }
    let files: Vec<PathBuf> = texts.values().cloned().collect();
    for ((stem, file), text) in texts.into_iter().zip(read_texts(&files)) {
        let id = name(&stem);
        let audio = match sounds.claim(&stem) {
            Some(found) => name(found),
            None => format!("{id}.wav"),
        };
        let audio = gathering.audio_folder(folder_of(&file)).join(audio);
        let draft = match text {
            Ok(text) => Ok(Draft { speaker: speaker(&id, '_'), id, audio, text, ..Draft::default() }),
            Err(trouble) => Err(Refused(Some(id), trouble)),
        };
        gathering.take(Place { file, line: None }, draft);
    }
    sounds.report_unnamed(gathering);
    Ok(())
}

/// Keeps a text under its path without the ending, unless the better one is there.
fn add_text(texts: &mut BTreeMap<PathBuf, PathBuf>, file: PathBuf) {
    let whole = name(&file);
    let ending = TEXTS.iter().find(|ending| whole.ends_with(*ending));
    if let Some(stem) = ending.and_then(|ending| whole.strip_suffix(ending)) {
        // The walk is sorted, so the normalised text comes first.
        texts.entry(file.with_file_name(stem)).or_insert(file);
    }
}

/// What stands in many small files, read at once because a slow disk is asked about each.
pub(super) fn read_texts(files: &[PathBuf]) -> Vec<Result<String, Trouble>> {
    files.par_iter().map(|file| read_text(file)).collect()
}

fn read_text(file: &Path) -> Result<String, Trouble> {
    let lines = Lines::open(file).map_err(|error| Trouble::Unreadable(error.to_string()))?;
    let mut text = String::new();
    for (_, line) in lines {
        text.push_str(line?.trim());
        text.push('\n');
        if text.len() > TEXT_MOST {
            return Err(Trouble::TooLong { what: "text", most: TEXT_MOST });
        }
    }
    Ok(text)
}
