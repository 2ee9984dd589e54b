//! Manifests: the lists of utterances that a data set consists of.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use plimsoll_core::Seconds;
use rayon::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::audio::{AudioError, audio_info};

/// One utterance: a stretch of an audio file and what is said in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Utterance {
    /// Its name, unique in the manifest; randomness is drawn by it, so it should not change.
    pub id: String,
    /// The audio file.
    pub audio: PathBuf,
    /// Where it begins in the file.
    pub offset: Seconds,
    /// How long it is.
    pub duration: Seconds,
    /// What is said, as written in the manifest.
    pub text: String,
    /// Who says it.
    pub speaker: Option<String>,
    /// In which language.
    pub language: Option<String>,
}

/// A list of utterances whose audio files exist.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The file it was read from.
    pub path: PathBuf,
    /// The utterances, in the order of the file.
    pub utterances: Vec<Utterance>,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// Neither a file nor a folder.
    #[error("manifest {} does not exist", .0.display())]
    NotFound(PathBuf),
    /// A folder without a manifest in it.
    #[error("folder {} holds neither {} nor {}", .0.display(), NAMES[0], NAMES[1])]
    NoManifest(PathBuf),
    /// The file is there but cannot be read.
    #[error("cannot read manifest {}", file.display())]
    Unreadable {
        /// The manifest.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file holds no utterance.
    #[error("manifest {} is empty", .0.display())]
    Empty(PathBuf),
    /// A line is wrong.
    #[error("line {line} of manifest {} is no utterance", file.display())]
    Line {
        /// The manifest.
        file: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong with it.
        source: LineError,
    },
}

/// Why a line of a manifest is no utterance.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not an object with the keys we know.
    #[error("a JSON object such as {{\"audio_filepath\": \"a.wav\", \"text\": \"hello\"}} was expected: {0}")]
    Json(String),
    /// A key that cannot be left out.
    #[error("the key `{0}` is missing")]
    MissingKey(&'static str),
    /// A time that is none.
    #[error("`{key}` is {value}, and a number of seconds was expected")]
    Time {
        /// The key.
        key: &'static str,
        /// Its value.
        value: f64,
    },
    /// Not `id|text` or `id|text|normalised`.
    #[error("`id|text` or `id|text|normalised` was expected, and {0} columns were found")]
    Columns(usize),
    /// The audio file does not exist, or has a broken header where its length was needed.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// The utterance would begin after the end of its file.
    #[error("the utterance begins at {offset}, and {} lasts {length}", audio.display())]
    AfterTheEnd {
        /// Where it begins.
        offset: Seconds,
        /// The audio file.
        audio: PathBuf,
        /// How long the file lasts.
        length: Seconds,
    },
    /// An id that an earlier line has.
    #[error("the id `{id}` is already that of line {first}")]
    Duplicate {
        /// The id.
        id: String,
        /// The earlier line.
        first: usize,
    },
}

/// What a folder's manifest may be called.
const NAMES: [&str; 2] = ["manifest.jsonl", "metadata.csv"];

impl Manifest {
    /// Reads a JSON-lines manifest with NeMo's keys, LJSpeech's `metadata.csv`, or a folder with one of the two.
    ///
    /// JSON lines need `audio_filepath` and `text`, and may have `duration`, `offset`, `id`, `speaker` and `lang` (or
    /// `language`); other keys are passed over. Relative paths start at the manifest's folder. A missing duration is
    /// read from the audio file's header, a missing id is made of path and offset. In `metadata.csv` every line is
    /// `id|text|normalised` (the last may be missing), without quoting, and the audio is `wavs/ID.wav`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ManifestError> {
        let path = locate(path.as_ref())?;
        let text = fs::read_to_string(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ManifestError::NotFound(path.clone()),
            _ => ManifestError::Unreadable { file: path.clone(), source },
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let read = if path.extension().is_some_and(|e| e == "csv") { ljspeech_line } else { json_line };
        // Some editors put this mark before the first line.
        let text = text.trim_start_matches('\u{feff}');
        let lines: Vec<(usize, &str)> = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).collect();
        // In parallel, because a slow disk is asked about every audio file.
        let read: Vec<_> = lines.par_iter().map(|&(number, line)| (number, read(line, &folder))).collect();
        let utterances =
            unique(read).map_err(|(line, source)| ManifestError::Line { file: path.clone(), line, source })?;
        if utterances.is_empty() {
            return Err(ManifestError::Empty(path));
        }
        Ok(Self { path, utterances })
    }

    /// How long all utterances last together.
    pub fn duration(&self) -> Seconds {
        self.utterances.iter().map(|utterance| utterance.duration).sum()
    }
}

fn locate(path: &Path) -> Result<PathBuf, ManifestError> {
    if !path.is_dir() {
        return Ok(path.into());
    }
    let found = NAMES.iter().map(|name| path.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| ManifestError::NoManifest(path.into()))
}

type Numbered<T> = (usize, T);

/// The utterances, or the first line that is wrong.
fn unique(read: Vec<Numbered<Result<Utterance, LineError>>>) -> Result<Vec<Utterance>, Numbered<LineError>> {
    let mut lines = HashMap::new();
    let mut utterances = Vec::with_capacity(read.len());
    for (number, utterance) in read {
        let utterance = utterance.map_err(|problem| (number, problem))?;
        if let Some(first) = lines.insert(utterance.id.clone(), number) {
            return Err((number, LineError::Duplicate { id: utterance.id, first }));
        }
        utterances.push(utterance);
    }
    Ok(utterances)
}

/// A line as NeMo writes it. Speakers are sometimes numbers.
#[derive(Deserialize)]
struct JsonLine {
    id: Option<Value>,
    audio_filepath: Option<String>,
    text: Option<String>,
    offset: Option<f64>,
    duration: Option<f64>,
    speaker: Option<Value>,
    #[serde(alias = "language")]
    lang: Option<Value>,
}

fn json_line(line: &str, folder: &Path) -> Result<Utterance, LineError> {
    let line: JsonLine = serde_json::from_str(line).map_err(|error| LineError::Json(without_line(&error)))?;
    let written = line.audio_filepath.ok_or(LineError::MissingKey("audio_filepath"))?;
    let text = line.text.ok_or(LineError::MissingKey("text"))?;
    let offset = time("offset", line.offset)?.unwrap_or_default();
    let audio = folder.join(&written);
    let duration = match time("duration", line.duration)? {
        Some(duration) => {
            exists(&audio)?;
            duration
        }
        None => rest(&audio, offset)?,
    };
    let id = line.id.and_then(word).unwrap_or_else(|| match offset {
        Seconds(0.0) => written,
        Seconds(offset) => format!("{written}@{offset}"),
    });
    let (speaker, language) = (line.speaker.and_then(word), line.lang.and_then(word));
    Ok(Utterance { id, audio, offset, duration, text, speaker, language })
}

fn ljspeech_line(line: &str, folder: &Path) -> Result<Utterance, LineError> {
    let columns: Vec<&str> = line.split('|').collect();
    let (id, text) = match *columns {
        [id, text] | [id, text, ""] => (id, text),
        [id, _, normalised] => (id, normalised),
        _ => return Err(LineError::Columns(columns.len())),
    };
    let audio = folder.join("wavs").join(format!("{id}.wav"));
    let duration = audio_info(&audio)?.duration;
    let (id, text, offset) = (id.to_owned(), text.to_owned(), Seconds(0.0));
    Ok(Utterance { id, audio, offset, duration, text, speaker: None, language: None })
}

fn time(key: &'static str, value: Option<f64>) -> Result<Option<Seconds>, LineError> {
    match value {
        Some(value) if !(value.is_finite() && value >= 0.0) => Err(LineError::Time { key, value }),
        value => Ok(value.map(Seconds)),
    }
}

fn exists(audio: &Path) -> Result<(), AudioError> {
    if audio.is_file() { Ok(()) } else { Err(AudioError::NotFound(audio.into())) }
}

fn rest(audio: &Path, offset: Seconds) -> Result<Seconds, LineError> {
    let length = audio_info(audio)?.duration;
    let inside = offset < length;
    if inside { Ok(length - offset) } else { Err(LineError::AfterTheEnd { offset, audio: audio.into(), length }) }
}

fn word(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}

/// The parser counts every line as its first, which would contradict ours.
fn without_line(error: &serde_json::Error) -> String {
    error.to_string().replace("at line 1 column", "at column")
}

#[cfg(test)]
mod tests;
