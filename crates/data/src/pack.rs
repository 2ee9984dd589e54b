//! Packs a corpus into shards: a few large files instead of millions of small ones.
//!
//! ```no_run
//! use plimsoll_data::Manifest;
//! use plimsoll_data::pack::{PackFormat, PackOptions, pack};
//!
//! let utterances = Manifest::read("corpus")?.utterances;
//! let packed = pack(&utterances, "shards", &PackOptions::new(PackFormat::WebDataset), &|_, _| {})?;
//! println!("{} utterances in {} shards", packed.utterances, packed.shards.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod kaldi;
mod parquet;
mod record;
mod shar;
mod shard;
mod webdataset;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_core::{Bytes, Draft, error_chain};
use rayon::prelude::*;

use crate::check::Progress;
use crate::issue::{Issue, IssueKind};
use crate::utterance::Utterance;
use crate::utterances::Utterances;
use kaldi::KaldiWriter;
use parquet::ParquetShards;
use plimsoll_audio::AudioError;
use record::Record;
use shar::SharWriter;
use webdataset::WebDatasetWriter;

/// Format of packed shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PackFormat {
    /// Tar files of WebDataset: each utterance is its audio and a `.json` with its text.
    WebDataset,
    /// Shar of Lhotse: tar files with audio, and a list of cuts beside each.
    Shar,
    /// Parquet of Hugging Face: `data/train-00000-of-00002.parquet`, with a column `audio`.
    Parquet,
    /// Data folder of Kaldi: `data.000000.ark` with WAV of 16 bits, and the tables `wav.scp`, `text`, `utt2spk` and so on,
    /// sorted as Kaldi wants them.
    Kaldi,
}

impl PackFormat {
    /// Every format that can be written.
    pub const ALL: [Self; 4] = [Self::WebDataset, Self::Shar, Self::Parquet, Self::Kaldi];

    /// Returns the name of the format on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::WebDataset => "webdataset",
            Self::Shar => "shar",
            Self::Parquet => "parquet",
            Self::Kaldi => "kaldi",
        }
    }

    /// Returns the format called `name`; `None` for an unknown name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// Settings of packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackOptions {
    /// Format of the shards.
    pub format: PackFormat,
    /// Size from which on a shard is full. Default: 512 MiB. A shard has at least one utterance.
    pub shard_size: Bytes,
}

impl PackOptions {
    /// Returns options with shards of 512 MiB.
    pub fn new(format: PackFormat) -> Self {
        Self { format, shard_size: Bytes::mib(512) }
    }
}

/// Result of packing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    /// Number of utterances in the shards.
    pub utterances: usize,
    /// Shards in order: the tar files, the Parquet files, or the archives.
    pub shards: Vec<PathBuf>,
    /// Size of all shards.
    pub bytes: Bytes,
    /// One issue for each utterance that is left out because its audio cannot be read.
    pub issues: Vec<Issue>,
}

/// Reason why a corpus cannot be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The folder for the shards already has files.
    #[error("{} is not empty; name a new folder", .0.display())]
    NotEmpty(PathBuf),
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Unwritable {
        /// File or folder that cannot be written.
        path: PathBuf,
        /// Error of the operating system while writing.
        source: io::Error,
    },
    /// The audio of every utterance is unreadable.
    #[error("none of {count} utterances can be packed; the first: {first}")]
    NothingPacked {
        /// Number of utterances.
        count: usize,
        /// Message of the first issue.
        first: String,
    },
}

/// Number of utterances that are read at the same time, and so are in memory together.
const AT_ONCE: usize = 64;

/// Writes `utterances` into shards in `folder`, in their order; Kaldi's tools want the order of the ids, so
/// [`PackFormat::Kaldi`] has that. `progress` gets the number of utterances that are done.
///
/// The audio file of a whole utterance is copied as it is, except into [`PackFormat::Shar`], which takes WAV and FLAC of
/// one channel only, and into [`PackFormat::Kaldi`], which takes WAV of 16 bits only: samples with more bits are rounded
/// there. A part of a recording is written as WAV with the same samples.
/// Equal utterances give equal bytes.
///
/// The shards are written into a folder of another name, which is then renamed: a crash or a failure never leaves half
/// a corpus under `folder`.
///
/// # Errors
/// When `folder` has files, when something cannot be written, or when no utterance can be read. An utterance that cannot
/// be read is left out, and becomes an [issue](Packed::issues).
pub fn pack(
    utterances: &Utterances,
    folder: impl AsRef<Path>,
    options: &PackOptions,
    progress: Progress<'_>,
) -> Result<Packed, PackError> {
    let folder = folder.as_ref();
    if fs::read_dir(folder).is_ok_and(|mut children| children.next().is_some()) || folder.is_file() {
        return Err(PackError::NotEmpty(folder.into()));
    }
    let is_new = |above: &&Path| !above.as_os_str().is_empty() && !above.exists();
    let made: Vec<&Path> = folder.ancestors().skip(1).take_while(is_new).collect();
    let packed = pack_aside(utterances, folder, options, progress);
    if packed.is_err() {
        // Only empty folders are removed.
        made.into_iter().for_each(|above| drop(fs::remove_dir(above)));
    }
    packed
}

/// Packs into a folder beside `folder`, which then gets its name.
fn pack_aside(
    utterances: &Utterances,
    folder: &Path,
    options: &PackOptions,
    progress: Progress<'_>,
) -> Result<Packed, PackError> {
    let unwritable = |source| PackError::Unwritable { path: folder.into(), source };
    folder.parent().map_or(Ok(()), fs::create_dir_all).map_err(unwritable)?;
    let draft = Draft::folder(folder).map_err(unwritable)?;
    let packed = pack_into(draft.path(), utterances, options, progress)?;
    let moved = |shard: &PathBuf| shard.strip_prefix(draft.path()).map_or(shard.clone(), |name| folder.join(name));
    let shards = packed.shards.iter().map(moved).collect();
    draft.finish(folder).map_err(unwritable)?;
    Ok(Packed { shards, ..packed })
}

/// Writer of shards in one format.
trait Writer {
    /// Adds an utterance to the current shard, or to a new one if that is full.
    fn add(&mut self, record: &Record<'_>) -> io::Result<()>;

    /// Ends the last shard, and returns the shards and the size of all files.
    fn finish(self: Box<Self>) -> io::Result<(Vec<PathBuf>, u64)>;
}

fn pack_into(
    folder: &Path,
    utterances: &Utterances,
    options: &PackOptions,
    progress: Progress<'_>,
) -> Result<Packed, PackError> {
    let unwritable = |source| PackError::Unwritable { path: folder.into(), source };
    let mut writer: Box<dyn Writer> = match options.format {
        PackFormat::WebDataset => Box::new(WebDatasetWriter::new(folder, options.shard_size)),
        PackFormat::Shar => Box::new(SharWriter::new(folder, options.shard_size)),
        PackFormat::Parquet => Box::new(ParquetShards::new(folder, options.shard_size)),
        PackFormat::Kaldi => Box::new(KaldiWriter::new(folder, options.shard_size)),
    };
    let order = (options.format == PackFormat::Kaldi).then(|| kaldi::order(utterances));
    let index = |n: usize| order.as_ref().map_or(n, |order| order[n]);
    let mut packed = Packed::default();
    for first in (0..utterances.len()).step_by(AT_ONCE) {
        let part = first..(first + AT_ONCE).min(utterances.len());
        let chunk: Vec<Utterance> = part.map(|n| utterances.get(index(n)).to_owned()).collect();
        let read = |(n, utterance)| Record::read(index(first + n), utterance, options.format);
        let records: Vec<Result<Record<'_>, AudioError>> = chunk.par_iter().enumerate().map(read).collect();
        for (utterance, record) in chunk.iter().zip(records) {
            match record {
                Ok(record) => {
                    writer.add(&record).map_err(unwritable)?;
                    packed.utterances += 1;
                }
                Err(error) => packed.issues.push(Issue::for_utterance(&utterance.id, issue(&error))),
            }
        }
        progress(first + chunk.len(), utterances.len());
    }
    if let Some(first) = packed.issues.first().filter(|_| packed.utterances == 0) {
        return Err(PackError::NothingPacked { count: utterances.len(), first: first.to_string() });
    }
    let (shards, bytes) = writer.finish().map_err(unwritable)?;
    Ok(Packed { shards, bytes: Bytes(bytes), ..packed })
}

fn issue(error: &AudioError) -> IssueKind {
    match error {
        AudioError::NotFound(file) => IssueKind::MissingAudio(file.clone()),
        AudioError::Silent(_) => IssueKind::Silent,
        error => IssueKind::UnreadableAudio(error_chain(error)),
    }
}

#[cfg(test)]
mod tests;
