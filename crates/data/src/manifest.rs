//! Manifests: the lists of utterances that a data set consists of.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::Seconds;
use serde::Serialize;

use crate::check::{CheckOptions, Checked, Flaw, Look, check};
use crate::import::{Format, ImportError, ImportOptions, import};
use crate::select::{Limits, Refusal, Selection, refuse};
use crate::utterance::Utterance;
use plimsoll_audio::LogMel;
use plimsoll_text::{Case, normalise};

/// A list of utterances whose audio files exist, and of what is listed in vain.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The file or folder it was read from.
    pub path: PathBuf,
    /// How that is laid out.
    pub format: Format,
    /// The utterances, in the order of the file.
    pub utterances: Vec<Utterance>,
    /// What is listed and cannot be used.
    pub flaws: Vec<Flaw>,
    /// Flaws that were too many to keep.
    pub more_flaws: usize,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read at all.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Not one utterance of it can be used.
    #[error("not one utterance of {} can be used ({count} listed); the first: {first}", path.display())]
    NothingUsable {
        /// The manifest.
        path: PathBuf,
        /// How many it lists.
        count: usize,
        /// What is wrong with the first.
        first: String,
    },
    /// It cannot be written.
    #[error("cannot write manifest {}", file.display())]
    Unwritable {
        /// The manifest.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Manifest {
    /// Reads a corpus in any [`Format`]: JSON lines as [`write`](Self::write) makes them, LJSpeech's folder, and so on.
    ///
    /// A line that makes no sense and an utterance without audio become [`flaws`](Self::flaws). A missing duration is read
    /// from the audio file's header; otherwise it is only looked whether the file is there.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ManifestError> {
        Self::read_with(path, &ImportOptions::default())
    }

    /// The same, where it is known what the files do not say.
    pub fn read_with(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Self, ManifestError> {
        let listing = import(&path, options)?;
        let (path, format) = (path.as_ref().to_path_buf(), listing.format);
        let options = CheckOptions { look: Look::Exists, ..CheckOptions::default() };
        let checked = check(listing, &options, &|_, _| {});
        let count = checked.listed();
        let Checked { utterances, flaws, more, .. } = checked;
        match flaws.first() {
            Some(first) if utterances.is_empty() => {
                Err(ManifestError::NothingUsable { path, count, first: first.to_string() })
            }
            _ => Ok(Self { path, format, utterances, flaws, more_flaws: more }),
        }
    }

    /// Divides the utterances by `limits`; a warning is logged for each that is refused.
    pub fn select(&self, limits: &Limits<'_>) -> Selection {
        let mut selection = Selection::default();
        for utterance in &self.utterances {
            match refuse(utterance, limits) {
                None => selection.kept.push(utterance.clone()),
                Some(reason) => {
                    tracing::warn!(utterance = utterance.id, %reason, "utterance not used");
                    selection.refused.push(Refusal { id: utterance.id.clone(), reason });
                }
            }
        }
        selection
    }

    /// How long all utterances last together.
    pub fn duration(&self) -> Seconds {
        self.utterances.iter().map(|utterance| utterance.duration).sum()
    }

    /// What share of all that is listed cannot be used.
    pub fn flawed_share(&self) -> f64 {
        let flawed = self.flaws.len() + self.more_flaws;
        flawed as f64 / (flawed + self.utterances.len()).max(1) as f64
    }

    /// Writes `utterances` as JSON lines with the keys that NeMo reads, and the lengths that a model will see: frames of
    /// `log_mel`, and the characters of the text.
    ///
    /// Audio below the manifest's folder is named from there, so that both can be moved together. The file is there whole
    /// or not at all.
    pub fn write(path: impl AsRef<Path>, utterances: &[Utterance], log_mel: &LogMel) -> Result<(), ManifestError> {
        let path = path.as_ref();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unwritable = |source| ManifestError::Unwritable { file: path.into(), source };
        let folder = folder.canonicalize().map_err(unwritable)?;
        let unfinished = path.with_extension("unfinished");
        let lines = utterances.iter().map(|utterance| Line::of(utterance, &folder, log_mel));
        write_lines(&unfinished, lines).and_then(|()| std::fs::rename(&unfinished, path)).map_err(unwritable)
    }
}

/// A line of a manifest, as we write it.
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(offset: &f64) -> bool {
    *offset == 0.0
}

impl<'a> Line<'a> {
    fn of(utterance: &'a Utterance, folder: &Path, log_mel: &LogMel) -> Self {
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
            tokens: normalise(text, Case::Keep).chars().count(),
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
