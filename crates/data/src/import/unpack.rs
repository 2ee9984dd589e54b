//! Unpacks compressed tar shards into a folder of their own. A compressed file cannot be read from the middle, and audio is
//! read in any order.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use flate2::bufread::MultiGzDecoder;
use plimsoll_core::{Bytes, counted, open_regular_file, replace_file};
use xxhash_rust::xxh3::xxh3_128;

use super::error::ImportError;
use super::lines::BoundedUnpack;
use crate::unpack::UnpackFolder;

/// Number of bytes that are unpacked at a time.
const PIECE: usize = 256 << 10;
/// Number of bytes at each end of a compressed file that its name in the folder comes from. The last bytes hold a checksum
/// of the content.
const SAMPLED: u64 = 64 << 10;

/// Unpacks the compressed shards of one corpus.
pub(super) struct Unpacker<'a> {
    folder: Option<&'a UnpackFolder>,
    room: Mutex<Room>,
}

/// Room in the folder.
#[derive(Default)]
struct Room {
    /// Size of all files.
    used: u64,
    /// Files of other corpora, the one with the latest use first.
    others: Vec<(SystemTime, PathBuf, u64)>,
}

impl<'a> Unpacker<'a> {
    /// Prepares the folder for the compressed files among `shards`. Without a folder nothing is unpacked.
    pub(super) fn new(folder: Option<&'a UnpackFolder>, shards: &[PathBuf]) -> Self {
        let Some(options) = folder else { return Self { folder, room: Mutex::default() } };
        let compressed: Vec<(u64, PathBuf)> = shards
            .iter()
            .filter_map(|shard| Some((fs::metadata(shard).ok()?.len(), target(shard, options)?)))
            .collect();
        let own: HashSet<&Path> = compressed.iter().map(|(_, target)| target.as_path()).collect();
        let missing: Vec<u64> = compressed.iter().filter(|(_, file)| !file.is_file()).map(|&(size, _)| size).collect();
        if !missing.is_empty() {
            let size = Bytes(missing.iter().sum());
            let shards = counted(missing.len(), "compressed shard");
            tracing::warn!("unpacking {shards} of {size} into {}, once", options.path.display());
        }
        Self { folder, room: Mutex::new(Room::of(options, &own)) }
    }

    /// Returns the tar file with the content of a shard: the shard itself, or the file that it was unpacked into.
    pub(super) fn content(&self, shard: &Path) -> Result<PathBuf, ImportError> {
        let Some((folder, target)) = self.folder.and_then(|folder| Some((folder, target(shard, folder)?))) else {
            return Ok(shard.into());
        };
        let unpacked = match File::open(&target) {
            // The time of the last use.
            Ok(file) => file.set_modified(SystemTime::now()),
            Err(_) => fs::create_dir_all(&folder.path).and_then(|()| self.unpack(shard, &target, folder.limit)),
        };
        match unpacked {
            Ok(()) => Ok(target),
            Err(source) => Err(ImportError::NotUnpacked { file: shard.into(), folder: folder.path.clone(), source }),
        }
    }

    fn unpack(&self, shard: &Path, target: &Path, limit: Bytes) -> io::Result<()> {
        let packed = open_regular_file(shard)?;
        let size = packed.metadata()?.len();
        let mut reader = BoundedUnpack::new(MultiGzDecoder::new(BufReader::new(packed)), size);
        let mut piece = vec![0; PIECE];
        replace_file(target, |file| {
            loop {
                let count = match reader.read(&mut piece) {
                    Ok(0) => return Ok(()),
                    Ok(count) => count,
                    // What lies before a damage is used: the tar file ends too early.
                    Err(error) if is_damage(&error) => return Ok(()),
                    Err(error) => return Err(error),
                };
                self.room.lock().unwrap_or_else(PoisonError::into_inner).take(count as u64, limit)?;
                file.write_all(&piece[..count])?;
            }
        })
    }
}

impl Room {
    /// Measures the room beside the files of the corpus itself.
    fn of(options: &UnpackFolder, own: &HashSet<&Path>) -> Self {
        let files = fs::read_dir(&options.path).into_iter().flatten().flatten();
        let known = |file: fs::DirEntry| {
            let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, file.path(), metadata.len()))
        };
        let files: Vec<_> = files.filter_map(known).collect();
        let used: u64 = files.iter().map(|(_, _, size)| size).sum();
        let mut others: Vec<_> = files.into_iter().filter(|(_, path, _)| !own.contains(path.as_path())).collect();
        others.sort_by(|a, b| b.cmp(a));
        Self { used, others }
    }

    /// Takes room for `bytes`, and deletes files of other corpora for it.
    fn take(&mut self, bytes: u64, limit: Bytes) -> io::Result<()> {
        while self.used + bytes > limit.0 {
            let Some((_, path, size)) = self.others.pop() else {
                let problem = format!("unpacked, its corpus takes more than {limit}, the limit of the folder");
                return Err(io::Error::other(problem));
            };
            fs::remove_file(&path)?;
            self.used -= size;
        }
        self.used += bytes;
        Ok(())
    }
}

/// Returns the file that a shard is unpacked into; `None` if it is not compressed. Its name comes from the content, so that a
/// corpus can move.
fn target(shard: &Path, folder: &UnpackFolder) -> Option<PathBuf> {
    let mut file = open_regular_file(shard).ok()?;
    let size = file.metadata().ok()?.len();
    let mut sample = Vec::new();
    Read::by_ref(&mut file).take(SAMPLED).read_to_end(&mut sample).ok()?;
    if !sample.starts_with(&[0x1f, 0x8b]) {
        return None;
    }
    file.seek(SeekFrom::Start(size.saturating_sub(SAMPLED))).ok()?;
    file.take(SAMPLED).read_to_end(&mut sample).ok()?;
    sample.extend(size.to_le_bytes());
    Some(folder.path.join(format!("{:032x}.tar", xxh3_128(&sample))))
}

/// Whether an error comes from the content of a compressed file, not from reading it.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}
