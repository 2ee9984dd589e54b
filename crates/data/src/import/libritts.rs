//! Reads LibriTTS and LibriTTS-R: beside every `S_C_P_U.wav` lie its normalized and its original text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::builder::{Draft, ListingBuilder, MAX_TEXT_BYTES};
use super::error::ImportError;
use super::format::Format;
use super::librispeech::{AudioFiles, speaker};
use super::lines::Lines;
use super::walk::{Walk, folder_of, is_audio, name};
use crate::issue::{Issue, IssueKind, SourceLocation};

/// Endings of the names of text files. Where an utterance has text files with both endings, the first ending counts.
pub(super) const TEXTS: [&str; 2] = [".normalized.txt", ".original.txt"];

/// Adds the utterances of any folder of a LibriTTS tree to `builder`: the root, one part, one speaker or one chapter.
pub(super) fn read(builder: &mut ListingBuilder<'_>, path: &Path) -> Result<(), ImportError> {
    let (mut texts, mut audio_files) = (BTreeMap::new(), AudioFiles::default());
    for file in Walk::new(path) {
        match file {
            Ok(file) if is_audio(&file) => audio_files.add(file),
            Ok(file) => add_text(&mut texts, file),
            Err(unreadable) => builder.add_unreadable(unreadable),
        }
    }
    if texts.is_empty() {
        return Err(ImportError::WrongFormat { path: path.into(), format: Format::LibriTts });
    }
    let files: Vec<PathBuf> = texts.values().cloned().collect();
    for ((stem, file), text) in texts.into_iter().zip(read_texts(&files)) {
        let id = name(&stem);
        let audio = match audio_files.claim(&stem) {
            Some(found) => name(found),
            None => format!("{id}.wav"),
        };
        let audio = builder.audio_folder(folder_of(&file)).join(audio);
        let draft = match text {
            Ok(text) => Ok(Draft { speaker: speaker(&id, '_'), id, audio, text, ..Draft::default() }),
            Err(kind) => Err(Issue::for_utterance(id, kind)),
        };
        builder.add(SourceLocation { file, line: None }, draft);
    }
    audio_files.add_textless(builder);
    Ok(())
}

/// Stores a text file under its path without the ending, unless a file with a preferred ending is already stored.
fn add_text(texts: &mut BTreeMap<PathBuf, PathBuf>, file: PathBuf) {
    let whole = name(&file);
    let ending = TEXTS.iter().find(|ending| whole.ends_with(*ending));
    if let Some(stem) = ending.and_then(|ending| whole.strip_suffix(ending)) {
        // Folders are read in the order of names, so the normalized text comes first.
        texts.entry(file.with_file_name(stem)).or_insert(file);
    }
}

/// Reads many small text files in parallel: on a slow disk each file costs a wait.
pub(super) fn read_texts(files: &[PathBuf]) -> Vec<Result<String, IssueKind>> {
    files.par_iter().map(|file| read_text(file)).collect()
}

fn read_text(file: &Path) -> Result<String, IssueKind> {
    let lines = Lines::open(file).map_err(|error| IssueKind::Unreadable(error.to_string()))?;
    let mut text = String::new();
    for (_, line) in lines {
        text.push_str(line?.trim());
        text.push('\n');
        if text.len() > MAX_TEXT_BYTES {
            return Err(IssueKind::FieldTooLong { field: "text", max_bytes: MAX_TEXT_BYTES });
        }
    }
    Ok(text)
}
