//! Sounds and pictures that a run has written.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Largest file that goes into a page.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// Number of utterances whose sounds and pictures are read.
const SAMPLES_MAX: usize = 8;

/// What the names of sounds that belong to no step begin with, in the order in which they are played, and what they mean.
const WORDS: &[(&str, &str)] = &[
    ("recording-", "the recording"),
    ("truth-", "from the log-mels of the recording"),
    ("griffin-lim-", "by Griffin-Lim"),
    ("best-", "said by the best model"),
];
/// What the names of sounds by a trained vocoder of a voice end with.
const BY_VOCODER: &str = "-vocoder";

/// Sounds and pictures of the newest samples of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Media {
    /// Samples with a title each.
    pub(super) samples: Vec<MediaSample>,
    /// Number of files of earlier steps, and of files that are not read.
    pub(super) others: usize,
}

/// One sample: its title and its files.
#[derive(Clone, Debug, Default)]
pub(super) struct MediaSample {
    pub(super) title: String,
    pub(super) files: Vec<MediaFile>,
}

/// One sound or picture.
#[derive(Clone, Debug)]
pub(super) struct MediaFile {
    pub(super) name: String,
    /// What it holds, in words; empty if its name says nothing.
    pub(super) meaning: String,
    pub(super) is_sound: bool,
    /// Address that holds the whole file.
    pub(super) uri: String,
}

/// Recordings of utterances, by the name of the utterance, as addresses that hold the whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct Recordings(BTreeMap<String, String>);

impl Recordings {
    /// Reads the recordings of the utterances `names` from the corpus that `config` names, where the names are paths and
    /// the files are small. `config` has its values by full key.
    pub(super) fn read<'a>(config: &BTreeMap<String, String>, names: impl Iterator<Item = &'a str>) -> Self {
        let Some(root) = root(config) else { return Self::default() };
        let found = |name: &str| {
            let path = Path::new(name);
            // A name from a file must not reach out of the corpus.
            if !path.components().all(|part| matches!(part, Component::Normal(_))) {
                return None;
            }
            let kind = recording_kind(path)?;
            Some((name.to_string(), uri(kind, &root.join(path))?))
        };
        Self(names.filter_map(found).collect())
    }

    /// Returns the recording of an utterance.
    pub(super) fn of(&self, name: &str) -> Option<MediaFile> {
        let uri = self.0.get(name)?.clone();
        Some(MediaFile { name: name.into(), meaning: String::new(), is_sound: true, uri })
    }
}

/// Returns the folder that the paths of a corpus start from.
fn root(config: &BTreeMap<String, String>) -> Option<PathBuf> {
    if let Some(root) = config.get("data.audio_root") {
        return Some(root.into());
    }
    let manifest = Path::new(config.get("data.manifest")?);
    if manifest.is_dir() { Some(manifest.into()) } else { Some(manifest.parent()?.into()) }
}

/// Returns the media type of a recording; `None` for a file that browsers do not play.
fn recording_kind(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "wav" => Some("audio/wav"),
        "ogg" | "oga" | "opus" => Some("audio/ogg"),
        "flac" => Some("audio/flac"),
        "mp3" => Some("audio/mpeg"),
        "m4a" => Some("audio/mp4"),
        _ => None,
    }
}

/// Reads the sounds and pictures of the newest step in `folder`, which the program names `step-000120-1.wav`, and those that belong to
/// no step, such as `truth-1.wav`. Files with other names follow after them.
pub(super) fn read_media(folder: &Path) -> Media {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| kind(path).is_some());
    paths.sort();
    let newest = paths.iter().filter_map(|path| Some(place(path)?.0)).flatten().max();
    let mut groups: BTreeMap<(bool, u64), Vec<&PathBuf>> = BTreeMap::new();
    for path in &paths {
        match place(path) {
            Some((step, number)) if step.is_none() || step == newest => {
                groups.entry((false, number)).or_default().push(path);
            }
            Some(_) => {}
            None => groups.entry((true, 0)).or_default().push(path),
        }
    }
    let mut media = Media::default();
    for ((is_other, number), mut paths) in groups.into_iter().take(SAMPLES_MAX) {
        paths.sort_by_key(|path| (meaning(path).0, path.as_path()));
        let title = match (is_other, newest) {
            (true, _) => "Other files".into(),
            (false, Some(step)) => format!("Held-out text {number}, after step {step}"),
            (false, None) => format!("Held-out text {number}"),
        };
        let files: Vec<MediaFile> = paths.into_iter().take(SAMPLES_MAX).filter_map(|path| read_file(path)).collect();
        if !files.is_empty() {
            media.samples.push(MediaSample { title, files });
        }
    }
    let shown: usize = media.samples.iter().map(|sample| sample.files.len()).sum();
    media.others = paths.len() - shown;
    media
}

/// Returns the step and the number of a sample from its name; no step for a recording, or for the best model.
fn place(path: &Path) -> Option<(Option<u64>, u64)> {
    let stem = path.file_stem()?.to_str()?;
    let stem = stem.strip_suffix(BY_VOCODER).unwrap_or(stem);
    if let Some((_, number)) = WORDS.iter().find_map(|(word, _)| Some((word, stem.strip_prefix(word)?))) {
        return Some((None, number.parse().ok()?));
    }
    let (step, number) = stem.strip_prefix("step-")?.split_once('-')?;
    Some((Some(step.parse().ok()?), number.parse().ok()?))
}

/// Returns the place of a file among those of its sample, and what it holds, in words.
fn meaning(path: &Path) -> (usize, String) {
    let Some(stem) = path.file_stem().and_then(OsStr::to_str).filter(|_| place(path).is_some()) else {
        return (WORDS.len(), String::new());
    };
    let Some(place) = WORDS.iter().position(|(word, _)| stem.starts_with(word)) else {
        return (WORDS.len(), "said".into());
    };
    let by = if stem.ends_with(BY_VOCODER) { ", by the vocoder" } else { "" };
    (place, format!("{}{by}", WORDS[place].1))
}

/// Returns the media type of a file; `None` for a file that a page does not show.
fn kind(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "wav" => Some("audio/wav"),
        "svg" => Some("image/svg+xml"),
        "png" => Some("image/png"),
        _ => None,
    }
}

fn read_file(path: &Path) -> Option<MediaFile> {
    let kind = kind(path)?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    Some(MediaFile { name, meaning: meaning(path).1, is_sound: kind.starts_with("audio"), uri: uri(kind, path)? })
}

/// Reads a small file as an address that holds all of it.
fn uri(kind: &str, path: &Path) -> Option<String> {
    if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= FILE_BYTES_MAX) {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(format!("data:{kind};base64,{}", BASE64_STANDARD.encode(bytes)))
}
