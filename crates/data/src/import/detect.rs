//! Finding out how a corpus is laid out: by the names of its files, and where names are shared by what is in them.

use std::path::Path;

use super::format::Format;
use super::json::Object;
use super::lines::Lines;
use super::trouble::ImportError;
use super::walk::{Walk, ending, holds_only_tables, is_audio, name};
use super::{common_voice, folder, hugging_face, kaldi, lhotse, librispeech, libritts, manifest};

/// So many lines are looked at, since the first may be damaged.
const LINES: usize = 20;

impl Format {
    /// What this path looks like; `None` is nothing that we know.
    ///
    /// A file is judged by its ending and its first lines. In a folder the first of these is taken: a manifest, Kaldi's
    /// files, Lhotse's lists, a `metadata.jsonl` or `metadata.csv` in it or in its folders (with a `file_name` Hugging
    /// Face's, with bars LJSpeech's), Common Voice's tables, and anywhere below it LibriSpeech's or LibriTTS's texts.
    /// Last come audio files with any text files.
    pub fn detect(path: &Path) -> Option<Self> {
        if path.is_dir() { by_lists(path).or_else(|| by_files(path)) } else { of_file(path) }
    }
}

fn of_file(file: &Path) -> Option<Format> {
    let whole = name(file);
    let bare = whole.strip_suffix(".gz").unwrap_or(&whole);
    match ending(Path::new(bare)).as_str() {
        // The ending says enough; what is wrong with the lines is told line by line.
        "jsonl" => of_json(file).or(Some(Format::Manifest)),
        "json" => of_json(file),
        "csv" => of_csv(file),
        "tsv" => of_tsv(file),
        _ if whole.ends_with(librispeech::LIST) => Some(Format::LibriSpeech),
        _ => kaldi::NEEDED.contains(&bare).then_some(Format::Kaldi),
    }
}

/// The first lines that can be read.
fn first_lines(file: &Path) -> Vec<String> {
    let lines = Lines::open(file).into_iter().flatten().take(LINES);
    lines.filter_map(|(_, line)| line.ok()).collect()
}

fn of_json(file: &Path) -> Option<Format> {
    first_lines(file).iter().find_map(|line| {
        let object = Object::read(line).ok()?;
        let has = |keys: &[&str]| keys.iter().any(|key| object.has(key));
        let cut = object.text(&["type"]).ok().flatten().is_some_and(|kind| kind.ends_with("Cut"));
        if has(&hugging_face::FILE) {
            Some(Format::HuggingFace)
        } else if cut || has(&["supervisions", "recording", "recording_id", "sources"]) {
            Some(Format::Lhotse)
        } else {
            has(&manifest::AUDIO).then_some(Format::Manifest)
        }
    })
}

fn of_csv(file: &Path) -> Option<Format> {
    let lines = first_lines(file);
    let header = lines.first()?;
    if header.split(',').any(|cell| hugging_face::FILE.contains(&cell.trim_matches(['"', ' ']))) {
        return Some(Format::HuggingFace);
    }
    lines.iter().any(|line| line.contains('|')).then_some(Format::LjSpeech)
}

fn of_tsv(file: &Path) -> Option<Format> {
    let lines = first_lines(file);
    common_voice::Header::read(lines.first()?).missing().is_none().then_some(Format::CommonVoice)
}

/// A folder with lists of known names.
fn by_lists(folder: &Path) -> Option<Format> {
    if manifest::in_folder(folder).is_some_and(|file| of_file(&file) == Some(Format::Manifest)) {
        return Some(Format::Manifest);
    }
    if kaldi::NEEDED.iter().all(|name| folder.join(name).is_file()) {
        return Some(Format::Kaldi);
    }
    if lhotse::lists(folder).is_some() {
        return Some(Format::Lhotse);
    }
    if hugging_face::lists(folder).iter().any(|list| of_file(list) == Some(Format::HuggingFace)) {
        return Some(Format::HuggingFace);
    }
    if of_file(&folder.join("metadata.csv")) == Some(Format::LjSpeech) {
        return Some(Format::LjSpeech);
    }
    common_voice::lists(folder).iter().find_map(|list| of_tsv(list))
}

/// A folder known by what lies anywhere below it.
fn by_files(folder: &Path) -> Option<Format> {
    let (mut audio, mut text) = (false, false);
    for file in Walk::new(folder).filter_map(Result::ok) {
        let name = name(&file);
        if name.ends_with(librispeech::LIST) {
            return Some(Format::LibriSpeech);
        }
        if libritts::TEXTS.iter().any(|ending| name.ends_with(ending)) {
            return Some(Format::LibriTts);
        }
        audio |= is_audio(&file);
        text |= folder::is_text(&file);
    }
    (audio && text).then_some(Format::Folder)
}

/// What to say of a path that looks like nothing we know.
pub(super) fn unknown(path: &Path) -> ImportError {
    if holds_only_tables(path) { ImportError::Parquet(path.into()) } else { ImportError::Unknown(path.into()) }
}
