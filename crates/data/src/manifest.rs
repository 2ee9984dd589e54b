//! Manifests: lists of utterances whose audio files exist, read from any layout and written as JSON lines.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use plimsoll_core::{Seconds, replace_file};
use serde::Serialize;

use crate::audio_root::suggest_audio_root;
use crate::check::{CheckDepth, CheckOptions, Checked, check_lists};
use crate::dropped::Dropped;
use crate::import::{Format, ImportError, ImportOptions, read_lists};
use crate::issue::{Issue, IssueKind, utterances_of};
use crate::select::{Limits, Selection};
use crate::utterances::{UtteranceRef, Utterances};
use plimsoll_audio::{AudioSource, LogMel};
use plimsoll_text::{Case, normalize};

/// Content of a corpus: the utterances whose audio files exist, and one issue for each other utterance.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// File or folder that the corpus was read from.
    pub path: PathBuf,
    /// Layout of the corpus.
    pub format: Format,
    /// Usable utterances, in the order of the corpus.
    pub utterances: Utterances,
    /// One issue for each listed utterance that cannot be used.
    pub issues: Vec<Issue>,
    /// Number of issues beyond the million that an import keeps.
    pub more_issues: usize,
    /// Number of utterances for each sample rate, in hertz, that the list reduces the audio to, see
    /// [`Checked::resampled`].
    pub resampled: BTreeMap<u32, usize>,
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
        /// Folder in which the relative paths of missing audio files exist, if one was found.
        audio_root: Option<PathBuf>,
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
    /// When the corpus cannot be read at all, or when all of its utterances have issues.
    pub fn read_with(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Self, ManifestError> {
        let listing = read_lists(path.as_ref(), options)?;
        let (path, format, root) = (path.as_ref().to_path_buf(), listing.format, listing.root.clone());
        let depth = CheckDepth::Exists;
        let progress = |found: usize, sought: usize| options.watch.look(found as u64, sought as u64);
        let checked = check_lists(listing, &CheckOptions { depth, ..CheckOptions::default() }, &progress);
        let count = checked.listed();
        let Checked { utterances, issues, more_issues, resampled, .. } = checked;
        match issues.first() {
            Some(first) if utterances.is_empty() => {
                let audio_root = suggest_audio_root(options.audio_root.as_deref().unwrap_or(&root), &issues);
                Err(ManifestError::NothingUsable { path, count, first: first.to_string(), audio_root })
            }
            _ => Ok(Self { path, format, utterances, issues, more_issues, resampled }),
        }
    }

    /// Divides the utterances into those inside and those outside of `limits`, and logs a warning for each excluded
    /// utterance.
    pub fn select(&self, limits: &Limits<'_>) -> Selection {
        Selection::new(self.utterances.clone(), limits)
    }

    /// Computes the total duration of the utterances.
    pub fn duration(&self) -> Seconds {
        (0..self.utterances.len()).map(|index| self.utterances.duration(index)).sum()
    }

    /// Counts the listed utterances that cannot be used, or are listed twice; those of a damaged shard are an estimate.
    pub fn flawed(&self) -> usize {
        utterances_of(&self.issues) + self.more_issues
    }

    /// Computes the share of the listed utterances that cannot be used, from 0 to 1. Utterances that are listed twice do
    /// not count.
    pub fn unusable_share(&self) -> f64 {
        self.dropped().share()
    }

    /// Returns all reasons why listed utterances cannot be used, with their counts.
    pub fn dropped(&self) -> Dropped {
        Dropped::new(self.utterances.len(), &self.issues, self.more_issues)
    }

    /// Writes `utterances` as JSON lines with NeMo's keys, and with the lengths that a model gets: the frames of
    /// `log_mel`, and the characters of the normalized text.
    ///
    /// Paths of audio below the manifest's folder are written relative to it, so that audio and manifest can move
    /// together. The file is written under another name and then renamed: a crash never leaves half a manifest, and a
    /// failure leaves nothing.
    ///
    /// # Errors
    /// When the folder does not exist, the file cannot be written, or the path of an audio file is not UTF-8, see
    /// [`take_unlistable`](Self::take_unlistable).
    pub fn write(path: impl AsRef<Path>, utterances: &Utterances, log_mel: &LogMel) -> Result<(), ManifestError> {
        let path = path.as_ref();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let unwritable = |source| ManifestError::Unwritable { file: path.into(), source };
        let folder = folder.canonicalize().map_err(unwritable)?;
        let lines = utterances.iter().map(|utterance| Line::new(utterance, &folder, log_mel));
        replace_file(path, |file| write_lines(file, lines)).map_err(unwritable)
    }

    /// Removes the utterances that a list in `folder` cannot name, because the path of their audio file is not UTF-8,
    /// and returns an issue for each.
    pub fn take_unlistable(utterances: &mut Utterances, folder: &Path) -> Vec<Issue> {
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
        let mut issues = Vec::new();
        let kept = utterances.filter(|&index| {
            let utterance = utterances.get(index);
            let path = listed_path(utterance.audio, &folder);
            if path.to_str().is_none() {
                let kind = IssueKind::PathNotUtf8(path.to_string_lossy().into_owned());
                issues.push(Issue::for_utterance(utterance.id, kind));
            }
            path.to_str().is_some()
        });
        if !issues.is_empty() {
            *utterances = kept;
        }
        issues
    }
}

/// Line of a written manifest. The field names are the keys in the file.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    audio_filepath: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<u16>,
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
    fn new(utterance: UtteranceRef<'a>, folder: &Path, log_mel: &LogMel) -> Self {
        let UtteranceRef { id, audio, offset, duration, text, speaker, language } = utterance;
        let audio_filepath = listed_path(audio, folder);
        Self {
            id,
            audio_filepath,
            channel: AudioSource::from_path(audio).channel,
            offset: offset.0,
            duration: duration.0,
            text,
            speaker,
            lang: language,
            frames: log_mel.frames_in(duration).0,
            tokens: normalize(text, Case::Keep).chars().count(),
        }
    }
}

/// Returns the path of audio in a list in `folder`, without its channel: relative if its file is below the folder.
fn listed_path(audio: &Path, folder: &Path) -> PathBuf {
    let AudioSource { file, part, .. } = AudioSource::from_path(audio);
    let whole = file.canonicalize().unwrap_or(file);
    let file = whole.strip_prefix(folder).map_or_else(|_| whole.clone(), Path::to_path_buf);
    AudioSource { file, part, channel: None }.to_path()
}

fn write_lines<'a>(file: &mut impl Write, lines: impl Iterator<Item = Line<'a>>) -> io::Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *file, &line)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
