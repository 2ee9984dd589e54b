//! Manifests: lists of utterances whose audio files exist, read from any layout and written as JSON lines.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;
use serde::Serialize;

use crate::check::{CheckDepth, CheckOptions, Checked, check};
use crate::import::{Format, ImportError, ImportOptions, import};
use crate::issue::Issue;
use crate::select::{Limits, Selection};
use crate::utterance::Utterance;
use plimsoll_audio::LogMel;
use plimsoll_text::{Case, normalize};

/// Content of a corpus: the utterances whose audio files exist, and one issue for each other utterance.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// File or folder that the corpus was read from.
    pub path: PathBuf,
    /// Layout of the corpus.
    pub format: Format,
    /// Usable utterances, in the order of the corpus.
    pub utterances: Vec<Utterance>,
    /// One issue for each listed utterance that cannot be used.
    pub issues: Vec<Issue>,
    /// Number of issues beyond the million that an import keeps.
    pub more_issues: usize,
}

/// Reason why a manifest cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The corpus cannot be read at all.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Every listed utterance has an issue.
    #[error("not one utterance of {} can be used ({count} listed); the first: {first}", path.display())]
    NothingUsable {
        /// File or folder of the corpus.
        path: PathBuf,
        /// Number of listed utterances.
        count: usize,
        /// Message of the first issue.
        first: String,
    },
    /// The file of the manifest cannot be written.
    #[error("cannot write manifest {}", file.display())]
    Unwritable {
        /// File of the manifest.
        file: PathBuf,
        /// Error of the operating system while writing.
        source: io::Error,
    },
}

impl Manifest {
    /// Reads a corpus in any [`Format`]: JSON lines as [`write`](Self::write) makes them, an LJSpeech folder, and so
    /// on.
    ///
    /// Lines that make no sense and utterances without audio become [`issues`](Self::issues). Audio files are not
    /// opened, except where the list has no duration: then the header is read.
    ///
    /// # Errors
    /// When the corpus cannot be read at all, or when all of its utterances have issues.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ManifestError> {
        Self::read_with(path, &ImportOptions::default())
    }

    /// Reads a corpus with facts that its files do not contain, such as the layout or the language.
    ///
    /// # Errors
    /// In the same cases as [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Self, ManifestError> {
        let listing = import(&path, options)?;
        let (path, format) = (path.as_ref().to_path_buf(), listing.format);
        let options = CheckOptions { depth: CheckDepth::Exists, ..CheckOptions::default() };
        let checked = check(listing, &options, &|_, _| {});
        let count = checked.listed();
        let Checked { utterances, issues, more_issues, .. } = checked;
        match issues.first() {
            Some(first) if utterances.is_empty() => {
                Err(ManifestError::NothingUsable { path, count, first: first.to_string() })
            }
            _ => Ok(Self { path, format, utterances, issues, more_issues }),
        }
    }

    /// Divides the utterances by `limits`, and logs a warning for each excluded utterance.
    pub fn select(&self, limits: &Limits<'_>) -> Selection {
        Selection::new(self.utterances.clone(), limits)
    }

    /// Computes the total duration of the utterances.
    pub fn duration(&self) -> Seconds {
        self.utterances.iter().map(|utterance| utterance.duration).sum()
    }

    /// Computes the share of the listed utterances that cannot be used, from 0 to 1.
    pub fn unusable_share(&self) -> f64 {
        let unusable = self.issues.len() + self.more_issues;
        unusable as f64 / (unusable + self.utterances.len()).max(1) as f64
    }

    /// Writes `utterances` as JSON lines with NeMo's keys, and with the lengths that a model gets: the frames of
    /// `log_mel`, and the characters of the normalized text.
    ///
    /// Paths of audio below the manifest's folder are written relative to it, so that audio and manifest can move
    /// together. The file is written under another name and then renamed: a crash never leaves half a manifest.
    ///
    /// # Errors
    /// When the folder does not exist or the file cannot be written.
    pub fn write(path: impl AsRef<Path>, utterances: &[Utterance], log_mel: &LogMel) -> Result<(), ManifestError> {
        let path = path.as_ref();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unwritable = |source| ManifestError::Unwritable { file: path.into(), source };
        let folder = folder.canonicalize().map_err(unwritable)?;
        let unfinished = path.with_extension("unfinished");
        let lines = utterances.iter().map(|utterance| Line::new(utterance, &folder, log_mel));
        write_lines(&unfinished, lines).and_then(|()| std::fs::rename(&unfinished, path)).map_err(unwritable)
    }
}

/// Line of a written manifest. The field names are the keys in the file.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    audio_filepath: PathBuf,
    #[serde(skip_serializing_if = "is_zero")]
    offset: f64,
    duration: f64,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    speaker: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lang: Option<&'a str>,
    frames: u32,
    tokens: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(offset: &f64) -> bool {
    *offset == 0.0
}

impl<'a> Line<'a> {
    fn new(utterance: &'a Utterance, folder: &Path, log_mel: &LogMel) -> Self {
        let Utterance { id, audio, offset, duration, text, speaker, language } = utterance;
        let whole = audio.canonicalize().unwrap_or_else(|_| audio.clone());
        let audio_filepath = whole.strip_prefix(folder).map_or_else(|_| whole.clone(), Path::to_path_buf);
        Self {
            id,
            audio_filepath,
            offset: offset.0,
            duration: duration.0,
            text,
            speaker: speaker.as_deref(),
            lang: language.as_deref(),
            frames: log_mel.frames_in(*duration).0,
            tokens: normalize(text, Case::Keep).chars().count(),
        }
    }
}

fn write_lines<'a>(path: &Path, lines: impl Iterator<Item = Line<'a>>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for line in lines {
        serde_json::to_writer(&mut file, &line)?;
        file.write_all(b"\n")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

#[cfg(test)]
mod tests;
