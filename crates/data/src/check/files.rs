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
use crate::import::Entries;
use crate::issue::IssueKind;
use crate::known_file::KnownFile;
use crate::table::Row;
use plimsoll_audio::{
    AudioError, AudioInfo, AudioKind, AudioSource, DURATION_TOLERANCE, audio_info, quick_audio_info, taken_channel,
};

/// What is known about the audio of a listing.
#[derive(Default)]
pub(super) struct AudioFiles {
    /// Header of each audio file that had to be opened, or the issue of a file that cannot be used.
    opened: HashMap<PathBuf, Result<AudioInfo, IssueKind>>,
    /// Issues of utterances whose audio did not have to be opened.
    faulty: HashMap<Row, IssueKind>,
}

/// Amount that is read of an audio file. The larger need counts where several utterances share a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// The sample rate; the length only where it costs nothing.
    Rate,
    Length,
}

impl AudioFiles {
    /// Opens the files of `entries`. Changes the path of an entry to that of a file whose name differs only in the way
    /// in which its accents are written.
    pub(super) fn open(entries: &mut Entries, depth: CheckDepth, progress: Progress<'_>) -> Self {
        let rows: Vec<Row> = (0..entries.len() as Row).collect();
        let mut files = Self::open_listed(entries, &rows, depth, progress);
        let mut names = ComposedNames::default();
        let mut renamed = Vec::new();
        for row in files.missing(entries) {
            if let Some(path) = names.find(entries.table().record(row).audio) {
                entries.set_audio(row, &path);
                files.faulty.remove(&row);
                renamed.push(row);
            }
        }
        if !renamed.is_empty() {
            let Self { opened, faulty } = Self::open_listed(entries, &renamed, depth, &|_, _| {});
            files.opened.extend(opened);
            files.faulty.extend(faulty);
        }
        files
    }

    /// Returns the utterances whose audio is missing, in order.
    fn missing(&self, entries: &Entries) -> Vec<Row> {
        let is_missing = |kind: &IssueKind| matches!(kind, IssueKind::MissingAudio(_));
        let mut rows: Vec<Row> = self.faulty.iter().filter(|(_, kind)| is_missing(kind)).map(|(row, _)| *row).collect();
        if self.opened.values().any(|info| info.as_ref().is_err_and(is_missing)) {
            let info = |row: &Row| self.opened.get(entries.table().record(*row).audio);
            let is_missing = |row: &Row| info(row).is_some_and(|info| info.as_ref().is_err_and(is_missing));
            rows.extend((0..entries.len() as Row).filter(is_missing));
        }
        rows.sort_unstable();
        rows
    }

    fn open_listed(entries: &Entries, rows: &[Row], depth: CheckDepth, progress: Progress<'_>) -> Self {
        // In the order of the list, in which the parts of a container stand together.
        let (mut needed, mut places) = (Vec::<(&Path, Need)>::new(), HashMap::<&Path, usize>::new());
        for &row in rows {
            // To read all records of a long list takes seconds.
            if depth == CheckDepth::Exists && !entries.table().has_rates() && entries.table().duration(row).is_some() {
                continue;
            }
            let record = entries.table().record(row);
            let need = match record.rate {
                _ if depth > CheckDepth::Exists => Need::Length,
                _ if entries.table().duration(row).is_none() => Need::Length,
                Some(_) => Need::Rate,
                None => continue,
            };
            let place = *places.entry(record.audio).or_insert(needed.len());
            match needed.get_mut(place) {
                Some((_, known)) => *known = need.max(*known),
                None => needed.push((record.audio, need)),
            }
        }
        let exists_only = |row: &Row| needed.is_empty() || !places.contains_key(entries.table().record(*row).audio);
        let listed: Vec<Row> = rows.iter().copied().filter(exists_only).collect();
        let (count, done) = (needed.len() + listed.len(), AtomicUsize::new(0));
        let step = || {
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(PROGRESS_STEP) || done == count || count < PROGRESS_STEP * PROGRESS_STEP {
                progress(done, count);
            }
        };
        let one = |(path, need): (&Path, Need)| {
            let info = if need == Need::Rate { quick_audio_info(path) } else { audio_info(path) };
            step();
            (path.to_path_buf(), info.map_err(|error| audio_issue(&error)))
        };
        let find = |known: &mut KnownFile, &row: &Row| {
            let audio = entries.table().record(row).audio;
            let found = if known.has(audio) { Ok(()) } else { exists(audio) };
            step();
            found.err().map(|error| (row, audio_issue(&error)))
        };
        let faulty = listed.par_iter().map_init(KnownFile::default, find).flatten_iter().collect();
        Self { opened: needed.par_iter().map(|&file| one(file)).collect(), faulty }
    }

    /// Returns the duration of an utterance: as listed where the file is long enough, else up to the end of the file.
    pub(super) fn measure(&self, entries: &Entries, row: Row) -> Result<Seconds, IssueKind> {
        if let Some(kind) = self.faulty.get(&row) {
            return Err(kind.clone());
        }
        let duration = entries.table().duration(row);
        if self.opened.is_empty() {
            return Ok(duration.unwrap_or_default());
        }
        let entry = entries.table().record(row);
        let Some(info) = self.opened.get(entry.audio) else { return Ok(duration.unwrap_or_default()) };
        let info = info.clone()?;
        // Opus has no rate of its own: decoders return the rate that they are asked for. HE-AAC is listed with twice the
        // rate that is read.
        let is_other = |rate: u32| match info.kind {
            AudioKind::Opus => false,
            AudioKind::Aac => rate != info.rate && rate != 2 * info.rate,
            _ => rate != info.rate,
        };
        if let Some(listed) = entry.rate.filter(|&rate| is_other(rate)) {
            return Err(IssueKind::WrongRate { listed, found: info.rate });
        }
        let (length, offset) = (info.duration, entry.offset);
        let inside = offset < length;
        if !inside {
            return Err(IssueKind::StartsAfterEnd { offset, length });
        }
        let found = length - offset;
        match duration {
            Some(listed) if listed > found + DURATION_TOLERANCE => Err(IssueKind::WrongDuration { listed, found }),
            Some(listed) if listed <= found => Ok(listed),
            _ => Ok(found),
        }
    }

    /// Returns the format of an audio file; `None` if it was not opened or cannot be read.
    pub(super) fn kind(&self, audio: &Path) -> Option<AudioKind> {
        self.opened.get(audio)?.as_ref().ok().map(|info| info.kind)
    }

    /// Finds the opened files whose channels cancel each other, as far as a check of this depth reads.
    pub(super) fn opposed(&self, depth: CheckDepth) -> Vec<PathBuf> {
        let is_read = |info: &AudioInfo| match depth {
            CheckDepth::Exists => false,
            CheckDepth::Header => info.kind.is_uncompressed(),
            CheckDepth::Decode => true,
        };
        let several = self
            .opened
            .par_iter()
            .filter(|(_, info)| info.as_ref().is_ok_and(|info| info.channels > 1 && is_read(info)));
        // What cannot be decoded is found elsewhere.
        let opposed = several.filter(|(path, _)| taken_channel(path).is_ok_and(|channel| channel.is_some()));
        let mut paths: Vec<PathBuf> = opposed.map(|(path, _)| path.clone()).collect();
        paths.sort();
        paths
    }

    /// Counts the opened files of each format.
    pub(super) fn formats(&self) -> BTreeMap<String, usize> {
        let mut formats = BTreeMap::new();
        for info in self.opened.values().flatten() {
            let channels = if info.channels == 1 { "1 channel".into() } else { format!("{} channels", info.channels) };
            *formats.entry(format!("{}, {} Hz, {channels}", info.kind.name(), info.rate)).or_default() += 1;
        }
        formats
    }
}

/// Number of files between two reports of progress, where there are many.
const PROGRESS_STEP: usize = 256;

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
        let AudioSource { file, part, channel } = AudioSource::from_path(path);
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
        Some(AudioSource { file: found, part, channel }.to_path())
    }
}

fn names(folder: &Path) -> HashMap<String, OsString> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let children = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = children.map(|child| child.file_name());
    names.filter_map(|name| Some((name.to_str()?.nfc().collect(), name))).collect()
}
