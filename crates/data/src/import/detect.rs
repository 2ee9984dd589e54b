//! Detects the layout of a corpus from file names, and from the first lines of files whose names several layouts share.

use std::path::{Path, PathBuf};

use super::error::ImportError;
use super::format::Format;
use super::json::Object;
use super::lines::{JsonItems, Lines};
use super::shards::{ARROW, PARQUET, TAR, has_extension};
use super::tables::{self, NEEDED};
use super::unlisted::{Files, single};
use super::walk::{Walk, children, ending, is_audio, is_text, name};
use super::{common_voice, hugging_face, kaldi, lhotse, librispeech, libritts, manifest};

/// Largest number of lines of a file that are searched: more than one, because the first line may be damaged.
const MAX_LINES: usize = 20;

impl Format {
    /// Detects the layout of the corpus at `path`; `None` for an unknown layout.
    ///
    /// A file is recognized by its extension and its first lines. A folder is searched in this order, and the first
    /// match counts: a manifest; the files of Kaldi; the lists of Lhotse; a `metadata.jsonl` or `metadata.csv` with
    /// `file_name` in it or in its subfolders (Hugging Face); a `metadata.csv` with `|` (LJSpeech); the tables of
    /// Common Voice; texts of LibriSpeech or LibriTTS anywhere below; audio files with text files; tar shards; Parquet
    /// files; Arrow files.
    pub fn detect(path: &Path) -> Option<Self> {
        if path.is_dir() { by_lists(path).or_else(|| by_files(path)) } else { detect_file(path) }
    }
}

fn detect_file(file: &Path) -> Option<Format> {
    let whole = name(file);
    let bare = whole.strip_suffix(".gz").unwrap_or(&whole);
    match ending(Path::new(bare)).as_str() {
        // The extension is enough: import reports what is wrong line by line.
        "jsonl" => detect_json(file).or(Some(Format::Manifest)),
        "json" => detect_json(file),
        "csv" => detect_csv(file),
        "tsv" => detect_tsv(file),
        _ if has_extension(file, TAR) => Some(Format::WebDataset),
        _ if has_extension(file, PARQUET) => Some(Format::Parquet),
        _ if has_extension(file, ARROW) => Some(Format::Arrow),
        _ if whole.ends_with(librispeech::LIST) => Some(Format::LibriSpeech),
        _ => kaldi::REQUIRED.contains(&bare).then_some(Format::Kaldi),
    }
}

/// Returns the readable lines among the first lines of a file.
fn first_lines(file: &Path) -> Vec<String> {
    let lines = Lines::open(file).into_iter().flatten().take(MAX_LINES);
    lines.filter_map(|(_, line)| line.ok()).collect()
}

fn detect_json(file: &Path) -> Option<Format> {
    let items = JsonItems::open(file).into_iter().flatten().take(MAX_LINES);
    items.filter_map(|(_, item)| item.ok()).find_map(|item| {
        let object = Object::read(&item).ok()?;
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

fn detect_csv(file: &Path) -> Option<Format> {
    let lines = first_lines(file);
    let header = lines.first()?;
    let delimiter = tables::delimiter_of(header).map_or(',', |(delimiter, _)| delimiter);
    if header.split(delimiter).any(|cell| hugging_face::FILE.contains(&cell.trim_matches(['"', ' ']))) {
        return Some(Format::HuggingFace);
    }
    lines.iter().any(|line| line.contains('|')).then_some(Format::LjSpeech)
}

fn detect_tsv(file: &Path) -> Option<Format> {
    let lines = first_lines(file);
    common_voice::Header::read(lines.first()?).missing().is_none().then_some(Format::CommonVoice)
}

/// Detects the layout of a folder from lists of known names; `None` if the folder has no such list.
fn by_lists(folder: &Path) -> Option<Format> {
    if manifest::in_folder(folder).is_some_and(|file| detect_file(&file) == Some(Format::Manifest)) {
        return Some(Format::Manifest);
    }
    if kaldi::REQUIRED.iter().all(|name| folder.join(name).is_file()) {
        return Some(Format::Kaldi);
    }
    if lhotse::lists(folder).is_some() {
        return Some(Format::Lhotse);
    }
    if hugging_face::lists(folder).iter().any(|list| detect_file(list) == Some(Format::HuggingFace)) {
        return Some(Format::HuggingFace);
    }
    if detect_file(&folder.join("metadata.csv")) == Some(Format::LjSpeech) {
        return Some(Format::LjSpeech);
    }
    common_voice::lists(folder).iter().find_map(|list| detect_tsv(list))
}

/// Detects the layout of a folder from the files anywhere below it; `None` if they have no known layout.
fn by_files(folder: &Path) -> Option<Format> {
    let (mut audio, mut text, mut shard, mut table, mut arrow) = (false, false, false, false, false);
    for file in Walk::new(folder).filter_map(Result::ok) {
        let name = name(&file);
        if name.ends_with(librispeech::LIST) {
            return Some(Format::LibriSpeech);
        }
        if libritts::TEXTS.iter().any(|ending| name.ends_with(ending)) {
            return Some(Format::LibriTts);
        }
        audio |= is_audio(&file);
        text |= is_text(&file);
        shard |= has_extension(&file, TAR);
        table |= has_extension(&file, PARQUET);
        arrow |= has_extension(&file, ARROW);
    }
    // Audio with texts beside shards may be what they were made from, or what was unpacked. Audio without texts is no corpus.
    let is_folder = audio && text && (!shard || has_pair(folder));
    let known =
        [(is_folder, Format::Folder), (shard, Format::WebDataset), (table, Format::Parquet), (arrow, Format::Arrow)];
    known.into_iter().find_map(|(is_there, format)| is_there.then_some(format))
}

/// Whether a sound anywhere below a folder has a text of its name beside it.
fn has_pair(folder: &Path) -> bool {
    let is_pair =
        |file: PathBuf| is_audio(&file) && ["txt", "lab"].iter().any(|text| file.with_extension(text).is_file());
    Walk::new(folder).filter_map(Result::ok).any(is_pair)
}

/// Returns the error for a path without a known layout.
pub(super) fn unknown(path: &Path) -> ImportError {
    let not_readable = |found: &str, advice: &str| ImportError::NotReadable {
        path: path.into(),
        found: found.into(),
        advice: advice.into(),
    };
    if holds_only_archives(path) {
        return not_readable(
            "holds compressed archives, which cannot be read from the middle",
            "unpack them into a folder; samples of WebDataset are read from `.tar` and `.tar.gz`",
        );
    }
    if path.is_dir() {
        return unknown_folder(path);
    }
    if tables::is_table(path)
        && let Some(about) = tables::description(path)
    {
        return not_readable(&about, NEEDED);
    }
    if let Some(problem) = single(path) {
        return problem;
    }
    if !["json", "gz"].contains(&ending(path).as_str()) {
        return ImportError::UnknownFormat(path.into());
    }
    match JsonItems::open(path).into_iter().flatten().next() {
        Some((_, Ok(item))) if Object::read(&item).is_ok() => not_readable(
            "is JSON, but its objects have no path of an audio file",
            "write a list of objects, an array or one a line, with `audio_filepath` and `text`",
        ),
        Some((_, Ok(item))) if item.starts_with('{') => not_readable(
            "is one JSON object, and a list of utterances was expected",
            "write a list of objects, an array or one a line, with `audio_filepath` and `text`",
        ),
        _ => ImportError::UnknownFormat(path.into()),
    }
}

/// Returns the error for a folder without a known layout.
fn unknown_folder(path: &Path) -> ImportError {
    if let Some(problem) = Files::below(path).problem(path) {
        return problem;
    }
    let mut lists = children(path).unwrap_or_default().into_iter().filter(|file| tables::is_table(file));
    match lists.find_map(|list| Some((name(&list), tables::description(&list)?))) {
        Some((list, about)) => ImportError::NotReadable {
            path: path.into(),
            found: format!("has no list that is read: `{list}` {about}"),
            advice: NEEDED.into(),
        },
        None => ImportError::UnknownFormat(path.into()),
    }
}

/// Whether `path` is a compressed archive, or contains such archives and no audio files.
fn holds_only_archives(path: &Path) -> bool {
    let is_archive = |file: &Path| {
        let whole = name(file);
        ending(file) == "zip" || whole.contains(".tar.")
    };
    let files = || Walk::new(path).filter_map(Result::ok);
    files().any(|file| is_archive(&file)) && !files().any(|file| is_audio(&file))
}
