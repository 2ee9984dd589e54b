//! Opens the audio files of a listing, each once, and finds those whose names are written with other Unicode characters.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_core::Seconds;
use rayon::prelude::*;
use unicode_normalization::UnicodeNormalization;

use super::{CheckDepth, Progress, audio_issue};
use crate::import::Entry;
use crate::issue::IssueKind;
use plimsoll_audio::{AudioError, AudioInfo, AudioKind, AudioSource, DURATION_TOLERANCE, audio_info, quick_audio_info};

/// Header of each audio file (`None` where it was not read), or the issue of a file that cannot be used.
pub(super) struct AudioFiles(HashMap<PathBuf, Result<Option<AudioInfo>, IssueKind>>);

/// Amount that is read of an audio file. The larger need counts where several utterances share a file.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    #[default]
    Existence,
    /// The sample rate; the length only where it costs nothing.
    Rate,
    Length,
}

impl AudioFiles {
    /// Opens the files of `entries`. Changes the path of an entry to that of a file whose name differs only in the way
    /// in which its accents are written.
    pub(super) fn open(entries: &mut [Entry], depth: CheckDepth, progress: Progress<'_>) -> Self {
        let mut files = Self::open_listed(entries, depth, progress);
        let missing = files.0.iter().filter(|(_, info)| matches!(info, Err(IssueKind::MissingAudio(_))));
        let mut names = ComposedNames::default();
        let found: HashMap<PathBuf, PathBuf> =
            missing.filter_map(|(path, _)| Some((path.clone(), names.find(path)?))).collect();
        if !found.is_empty() {
            let mut renamed = Vec::new();
            for entry in entries {
                if let Some(path) = found.get(&entry.audio) {
                    entry.audio.clone_from(path);
                    renamed.push(entry.clone());
                }
            }
            files.0.extend(Self::open_listed(&renamed, depth, &|_, _| {}).0);
        }
        files
    }

    fn open_listed(entries: &[Entry], depth: CheckDepth, progress: Progress<'_>) -> Self {
        let mut needed: HashMap<&Path, Need> = HashMap::new();
        for entry in entries {
            let need = match entry {
                _ if depth > CheckDepth::Exists => Need::Length,
                Entry { duration: None, .. } => Need::Length,
                Entry { rate: Some(_), .. } => Need::Rate,
                _ => Need::Existence,
            };
            let known = needed.entry(&entry.audio).or_default();
            *known = need.max(*known);
        }
        let (count, done) = (needed.len(), AtomicUsize::new(0));
        let one = |(path, need): (&Path, Need)| {
            let info = match need {
                Need::Existence => exists(path).map(|()| None),
                Need::Rate => quick_audio_info(path).map(Some),
                Need::Length => audio_info(path).map(Some),
            };
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, count);
            (path.to_path_buf(), info.map_err(|error| audio_issue(&error)))
        };
        Self(needed.into_par_iter().map(one).collect())
    }

    /// Returns the duration of an utterance: as listed where the file is long enough, else up to the end of the file.
    pub(super) fn measure(&self, entry: &Entry) -> Result<Seconds, IssueKind> {
        let info = self.0[&entry.audio].clone()?;
        let Some(info) = info else { return Ok(entry.duration.unwrap_or_default()) };
        // Opus has no rate of its own: decoders return the rate that they are asked for.
        if let Some(listed) = entry.rate.filter(|&rate| rate != info.rate && info.kind != AudioKind::Opus) {
            return Err(IssueKind::WrongRate { listed, found: info.rate });
        }
        let (length, offset) = (info.duration, entry.offset);
        let inside = offset < length;
        if !inside {
            return Err(IssueKind::StartsAfterEnd { offset, length });
        }
        let found = length - offset;
        match entry.duration {
            Some(listed) if listed > found + DURATION_TOLERANCE => Err(IssueKind::WrongDuration { listed, found }),
            Some(listed) if listed <= found => Ok(listed),
            _ => Ok(found),
        }
    }

    /// Counts the opened files of each format.
    pub(super) fn formats(&self) -> BTreeMap<String, usize> {
        let mut formats = BTreeMap::new();
        for info in self.0.values().filter_map(|info| info.as_ref().ok().copied().flatten()) {
            let channels = if info.channels == 1 { "1 channel".into() } else { format!("{} channels", info.channels) };
            *formats.entry(format!("{}, {} Hz, {channels}", info.kind.name(), info.rate)).or_default() += 1;
        }
        formats
    }
}

fn exists(path: &Path) -> Result<(), AudioError> {
    let file = path.into();
    AudioSource::from_path(path).metadata().map(drop).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => AudioError::NotFound(file),
        _ => AudioError::Unreadable { file, source },
    })
}

/// Names of the files in folders, by their composed form (Unicode's NFC).
///
/// An accent is one character with its letter or a character of its own, depending on the system that made a name. Both
/// look alike, and a list made on one system may not find the files of another.
#[derive(Default)]
struct ComposedNames(HashMap<PathBuf, HashMap<String, OsString>>);

impl ComposedNames {
    /// Finds the audio that `path` means.
    fn find(&mut self, path: &Path) -> Option<PathBuf> {
        if path.to_str().is_none_or(str::is_ascii) {
            return None;
        }
        let AudioSource { file, part } = AudioSource::from_path(path);
        let mut found = PathBuf::new();
        for component in file.components() {
            let exact = found.join(component);
            match component {
                Component::Normal(name) if !exact.exists() => {
                    let composed: String = name.to_str()?.nfc().collect();
                    let real = self.0.entry(found.clone()).or_insert_with(|| names(&found)).get(&composed)?;
                    found.push(real);
                }
                _ => found = exact,
            }
        }
        Some(AudioSource { file: found, part }.to_path())
    }
}

fn names(folder: &Path) -> HashMap<String, OsString> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let children = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = children.map(|child| child.file_name());
    names.filter_map(|name| Some((name.to_str()?.nfc().collect(), name))).collect()
}
