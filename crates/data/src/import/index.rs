//! Prepared index of a long list: what a start reads of the list, in a file beside it that is mapped and not parsed.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, MmapOptions};
use plimsoll_core::{error_chain, open_regular_file, regular_file_metadata, replace_file};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::builder::ListingBuilder;
use super::entries::Entries;
use super::error::ImportError;
use super::format::Format;
use super::listing::ImportOptions;
use super::walk::folder_of;
use super::watch::ListIndex;
use super::{Imported, manifest, read_listed, unreadable};

/// First bytes of an index. The number is the version of the format: before 02, channels of lists were not read.
const MAGIC: [u8; 8] = *b"PLMIDX02";
/// Number of them that every version has.
const SAME_IN_ALL: usize = 6;
/// Largest header, in bytes. That of four billion utterances is smaller.
const MAX_HEADER_BYTES: u64 = 64 << 20;
/// Ending of the name of an index, behind the name of its list.
const ENDING: &str = ".index";

/// What an index says of itself before its sections, as JSON.
#[derive(Serialize, Deserialize)]
struct Header {
    list: ListIdentity,
    /// Lines, and then the sections of the table.
    sections: Vec<Section>,
}

/// The list that an index was made of.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ListIdentity {
    bytes: u64,
    /// Seconds and nanoseconds of its last change.
    modified: (i64, i64),
    /// Folder that the paths of its audio files begin with.
    folder: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Section {
    bytes: u64,
    sum: u64,
}

/// Reason why no index of a list can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The list cannot be read at all.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The corpus is not one list of JSON lines.
    #[error("{} is {found}, and only a list of JSON lines has an index", path.display())]
    NoList {
        /// File or folder of the corpus.
        path: PathBuf,
        /// Layout of the corpus.
        found: Format,
    },
    /// Some lines are no usable utterances, or their durations are not known.
    #[error("{} has lines that are no whole utterances; the first: {first}", list.display())]
    Incomplete {
        /// The list.
        list: PathBuf,
        /// What is wrong with the first of them.
        first: String,
    },
    /// The list was written while it was read.
    #[error("{} changed while it was read", .0.display())]
    Changed(PathBuf),
    /// There is another file in the place of the index.
    #[error("{} is no index, and is not replaced", .0.display())]
    Taken(PathBuf),
    /// The list cannot be read, or the index cannot be written.
    #[error("cannot make the index {}", file.display())]
    Io {
        /// File of the index.
        file: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// Makes the index of the list of JSON lines at `path`, or in the folder `path`: a file beside the list, from which later
/// starts take what they would read of the list. It is used as long as the list has its size, its time of change and its
/// folder.
///
/// ```
/// use plimsoll_data::utterances::index_list;
/// use plimsoll_data::{ImportOptions, import};
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(
///     folder.path().join("manifest.jsonl"),
///     "{\"id\": \"a\", \"audio_filepath\": \"a.wav\", \"duration\": 1.5, \"text\": \"one\"}\n",
/// )?;
/// let read = import(folder.path(), &ImportOptions::default())?;
/// let index = index_list(folder.path())?;
/// assert_eq!((index.utterances, index.file), (1, folder.path().join("manifest.jsonl.index")));
/// assert_eq!(import(folder.path(), &ImportOptions::default())?.entries, read.entries);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the corpus has another layout, when a line is no whole utterance, or when the index cannot be written.
pub fn index_list(path: impl AsRef<Path>) -> Result<ListIndex, IndexError> {
    let path = path.as_ref();
    if !path.is_dir() {
        regular_file_metadata(path).map_err(|source| unreadable(path, source))?;
    }
    let found = Format::detect(path).ok_or_else(|| super::detect::unknown(path))?;
    let list = manifest::in_folder(path).filter(|_| found == Format::Manifest);
    let list = list.ok_or_else(|| IndexError::NoList { path: path.into(), found })?;
    let file = index_of(&list);
    let failed = |source| IndexError::Io { file: file.clone(), source };
    if !may_replace(&file).map_err(failed)? {
        return Err(IndexError::Taken(file));
    }
    let before = ListIdentity::of(&list).map_err(failed)?;
    // With a whole path, so that the paths of audio files hold in every working folder. Audio lies beside a link, and not
    // beside the file that it names.
    let whole = before.folder.join(list.file_name().unwrap_or_default());
    let read = read_listed(Format::Manifest, &whole, &ImportOptions::default())?;
    write(&list, before, &read)
}

/// Reads a list as [`read_listed`] does, and makes its index if its lines can have one: the next start takes that. What
/// prevents it is logged.
pub(super) fn read_and_make(list: &Path, path: &Path, options: &ImportOptions) -> Result<Imported, ImportError> {
    let before = ListIdentity::of(list);
    let Ok(before) = before else { return read_listed(Format::Manifest, path, options) };
    let whole = before.folder.join(list.file_name().unwrap_or_default());
    let read = read_listed(Format::Manifest, &whole, options)?;
    let is_free = may_replace(&index_of(list)).unwrap_or(false);
    match is_free.then(|| write(list, before, &read)) {
        Some(Ok(made)) => options.watch.set_index(made),
        Some(Err(error)) => tracing::info!(error = error_chain(&error), "no index of a long list"),
        None => {
            tracing::info!(list = %list.display(), "no index of a long list: its place is taken, or cannot be read");
        }
    }
    let root = ListingBuilder::new(Format::Manifest, path, options).root;
    Ok(Imported { root, ..read })
}

/// Writes the index of a list that was read.
fn write(list: &Path, before: ListIdentity, read: &Imported) -> Result<ListIndex, IndexError> {
    let Imported { entries, issues, .. } = read;
    let file = index_of(list);
    let failed = |source| IndexError::Io { file: file.clone(), source };
    if let Some(first) = issues.first() {
        return Err(IndexError::Incomplete { list: list.into(), first: first.to_string() });
    }
    let lines = entries.indexed().ok_or_else(|| {
        let first = "an utterance without a duration".into();
        IndexError::Incomplete { list: list.into(), first }
    })?;
    let mut sections = vec![Cow::Owned(lines)];
    sections.extend(entries.table().sections());
    let sum = |section: &Cow<'_, [u8]>| Section { bytes: section.len() as u64, sum: xxh3_64(section) };
    let header = Header { list: before, sections: sections.par_iter().map(sum).collect() };
    if ListIdentity::of(list).map_err(failed)? != header.list {
        return Err(IndexError::Changed(list.into()));
    }
    let text = serde_json::to_vec(&header).expect("a header is plain data");
    let write_all = |out: &mut dyn Write| {
        out.write_all(&MAGIC)?;
        out.write_all(&(text.len() as u64).to_le_bytes())?;
        out.write_all(&text)?;
        sections.iter().try_for_each(|section| out.write_all(section))
    };
    replace_file(&file, |out| write_all(out)).map_err(failed)?;
    let bytes = std::fs::metadata(&file).map_err(failed)?.len();
    Ok(ListIndex { file, utterances: entries.len(), bytes })
}

/// Opens the index of `list`, and returns what reading the list would; `None` without an index. An index that is not that
/// of the list is left aside with a warning.
pub(super) fn open(list: &Path) -> Option<Entries> {
    let index = index_of(list);
    let file = match open_regular_file(&index) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return unused(&index, &error.to_string()),
    };
    match read(file, list) {
        Ok(Some(entries)) => Some(entries),
        Ok(None) => unused(&index, "it is damaged, or not of this version"),
        Err(error) => unused(&index, &error.to_string()),
    }
}

fn unused(index: &Path, reason: &str) -> Option<Entries> {
    tracing::warn!(index = %index.display(), reason, "the index of a list is not used: `data index` makes it again");
    None
}

/// Reads an index; `None` if it is damaged.
fn read(mut file: File, list: &Path) -> io::Result<Option<Entries>> {
    let mut first = [0; 16];
    let size = file.metadata()?.len();
    if size < first.len() as u64 {
        return Ok(None);
    }
    file.read_exact(&mut first)?;
    let length = u64::from_le_bytes(first[8..].try_into().expect("eight bytes"));
    if first[..8] != MAGIC || length > MAX_HEADER_BYTES.min(size - first.len() as u64) {
        return Ok(None);
    }
    let mut text = Vec::new();
    (&mut file).take(length).read_to_end(&mut text)?;
    let Ok(Header { list: known, sections }) = serde_json::from_slice(&text) else { return Ok(None) };
    if known != ListIdentity::of(list)? {
        return Err(io::Error::other("the list changed since, or was moved"));
    }
    let start = first.len() as u64 + length;
    let sum = sections.iter().try_fold(start, |sum, section| sum.checked_add(section.bytes));
    if sum != Some(size) {
        return Ok(None);
    }
    let (mut maps, mut at) = (Vec::with_capacity(sections.len()), start);
    for section in &sections {
        maps.push(mapped(&file, at, section.bytes)?);
        at += section.bytes;
    }
    let is_whole = maps.par_iter().zip(&sections).all(|(map, section)| xxh3_64(map) == section.sum);
    if !is_whole || maps.is_empty() {
        return Ok(None);
    }
    let lines = maps.remove(0);
    Ok(Entries::from_index(list, &lines, maps))
}

fn mapped(file: &File, at: u64, bytes: u64) -> io::Result<Mmap> {
    let length = usize::try_from(bytes).map_err(io::Error::other)?;
    // SAFETY: mapped bytes must not change. An index is written under another name, and then replaced as a whole.
    unsafe { MmapOptions::new().offset(at).len(length).map(file) }
}

/// Returns whether nothing is at `file`, or an index of any version.
fn may_replace(file: &Path) -> io::Result<bool> {
    match open_regular_file(file) {
        Ok(there) => {
            let mut first = Vec::new();
            there.take(SAME_IN_ALL as u64).read_to_end(&mut first)?;
            Ok(first == MAGIC[..SAME_IN_ALL])
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns the file of the index of `list`.
fn index_of(list: &Path) -> PathBuf {
    let mut name = OsString::from(list);
    name.push(ENDING);
    name.into()
}

impl ListIdentity {
    fn of(list: &Path) -> io::Result<Self> {
        let (metadata, folder) = (std::fs::metadata(list)?, folder_of(list).canonicalize()?);
        Ok(Self { bytes: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()), folder })
    }
}
