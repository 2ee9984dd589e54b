//! Unpacks compressed tar shards into a folder of their own. A compressed file cannot be read from the middle, and audio is
//! read in any order.
//!
//! The folder holds `HASH.tar` for each shard, `HASH.damaged.tar` for what lies before a damage, `lock` for the process that
//! unpacks, and `PID.used`, which a process keeps locked and which lists the shards that it reads. Other files are left alone.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, FileTimes, OpenOptions};
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
/// of the content, or of its last part.
const SAMPLED: u64 = 64 << 10;
/// Size from which a gzip file does not say how large its content is.
const SIZE_KNOWN: u64 = 1 << 32;

/// Lists of the shards that this process reads, by folder. They stay locked until the process ends.
static USED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// The tar file with the content of a shard.
pub(super) struct Content {
    /// The shard itself, or the file that it was unpacked into.
    pub(super) path: PathBuf,
    /// Whether the compressed form is damaged.
    pub(super) is_damaged: bool,
}

/// Unpacks the compressed shards of one corpus.
pub(super) struct Unpacker<'a> {
    folder: Option<&'a UnpackFolder>,
    room: Mutex<Room>,
    /// Held while shards are missing: another process with the same shards waits, and finds them.
    _lock: Option<File>,
}

/// Room in the folder.
#[derive(Default)]
struct Room {
    /// Size of all shards in it.
    used: u64,
    /// Shards that no process reads, the one with the latest use first.
    others: Vec<(SystemTime, PathBuf, u64)>,
}

/// Compressed shard and its place in the folder.
struct Packed {
    size: u64,
    /// Path without extension.
    target: PathBuf,
    /// Least size of the content.
    content: u64,
}

impl<'a> Unpacker<'a> {
    /// Prepares the folder for the compressed files among `shards`. Without a folder nothing is unpacked.
    ///
    /// # Errors
    /// If the folder cannot be made or locked, or if the shards need more than its limit.
    pub(super) fn new(folder: Option<&'a UnpackFolder>, shards: &[PathBuf]) -> Result<Self, ImportError> {
        let nothing = Self { folder, room: Mutex::default(), _lock: None };
        let Some(options) = folder else { return Ok(nothing) };
        let described = shards.iter().filter_map(|shard| Some((shard, Packed::new(shard, options)?)));
        let (names, packed): (Vec<&PathBuf>, Vec<Packed>) = described.unzip();
        let Some(first) = names.first() else { return Ok(nothing) };
        let failed = |source| not_unpacked(first, options, source);
        if options.path.exists() && !options.path.is_dir() {
            return Err(failed(io::Error::other("it is a file, and a folder is needed")));
        }
        fs::create_dir_all(&options.path).map_err(failed)?;
        note_use(&options.path, &packed).map_err(failed)?;
        if packed.iter().all(|shard| shard.found().is_some()) {
            return Ok(nothing);
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(options.path.join("lock"));
        let lock = lock.and_then(|file| file.lock().map(|()| file)).map_err(failed)?;
        // What another process has unpacked meanwhile is there now.
        let missing: Vec<&Packed> = packed.iter().filter(|shard| shard.found().is_none()).collect();
        let least: u64 = packed.iter().map(|shard| shard.content).sum();
        if least > options.limit.0 {
            return Err(failed(too_large(Bytes(least), options.limit)));
        }
        if !missing.is_empty() {
            let size = Bytes(missing.iter().map(|shard| shard.size).sum());
            let shards = counted(missing.len(), "compressed shard");
            tracing::warn!("unpacking {shards} of {size} into {}, once", options.path.display());
        }
        Ok(Self { folder, room: Mutex::new(Room::of(options)), _lock: Some(lock) })
    }

    /// Returns the tar file with the content of a shard. A shard that cannot be read is returned as it is.
    ///
    /// # Errors
    /// If its content cannot be written.
    pub(super) fn content(&self, shard: &Path) -> Result<Content, ImportError> {
        let plain = || Content { path: shard.into(), is_damaged: false };
        let Some(folder) = self.folder else { return Ok(plain()) };
        let Some(packed) = Packed::new(shard, folder) else { return Ok(plain()) };
        if let Some(found) = packed.found() {
            return Ok(found);
        }
        self.unpack(shard, &packed, folder.limit).map_err(|source| not_unpacked(shard, folder, source))?;
        Ok(packed.found().unwrap_or_else(plain))
    }

    fn unpack(&self, shard: &Path, packed: &Packed, limit: Bytes) -> io::Result<()> {
        let mut reader =
            BoundedUnpack::new(MultiGzDecoder::new(BufReader::new(open_regular_file(shard)?)), packed.size);
        let mut piece = vec![0; PIECE];
        let (mut is_damaged, mut written) = (false, 0);
        let whole = packed.target.with_extension("tar");
        replace_file(&whole, |file| {
            loop {
                match reader.read(&mut piece) {
                    Ok(0) => return Ok(()),
                    Ok(count) => {
                        self.room.lock().unwrap_or_else(PoisonError::into_inner).take(count as u64, limit)?;
                        file.write_all(&piece[..count])?;
                        written += count;
                    }
                    // What lies before a damage is used. Other bytes behind the end are no part of the file, as for gzip.
                    Err(error) => {
                        is_damaged = written == 0 || !error.to_string().contains("invalid gzip header");
                        return Ok(());
                    }
                }
            }
        })?;
        if is_damaged { fs::rename(&whole, packed.target.with_extension("damaged.tar")) } else { Ok(()) }
    }
}

impl Packed {
    /// Describes a shard; `None` if it is not compressed, or cannot be read. Its name in the folder comes from its size, its ends
    /// and the time of its last change, so that a corpus can move, and a shard that was mended is unpacked anew.
    fn new(shard: &Path, folder: &UnpackFolder) -> Option<Self> {
        let mut file = open_regular_file(shard).ok()?;
        let metadata = file.metadata().ok()?;
        let (size, changed) = (metadata.len(), metadata.modified().ok()?);
        let mut sample = Vec::new();
        Read::by_ref(&mut file).take(SAMPLED).read_to_end(&mut sample).ok()?;
        if !sample.starts_with(&[0x1f, 0x8b]) {
            return None;
        }
        file.seek(SeekFrom::Start(size.saturating_sub(SAMPLED))).ok()?;
        file.take(SAMPLED).read_to_end(&mut sample).ok()?;
        let end = sample.last_chunk().map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
        // A damaged file may end with any number; sound hardly gets smaller.
        let content = if size < SIZE_KNOWN && end < 4 * size { end.max(size / 2) } else { size / 2 };
        let since = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        sample.extend(size.to_le_bytes());
        sample.extend(since.as_nanos().to_le_bytes());
        Some(Self { size, target: folder.path.join(format!("{:032x}", xxh3_128(&sample))), content })
    }

    /// Returns the content if it is in the folder, and notes the time of its use.
    fn found(&self) -> Option<Content> {
        let found = [("tar", false), ("damaged.tar", true)].into_iter().find_map(|(extension, is_damaged)| {
            let path = self.target.with_extension(extension);
            Some((File::open(&path).ok()?, Content { path, is_damaged }))
        });
        let (file, content) = found?;
        // The time of a change would make a cache of features compute anew. A shard of another user keeps its time.
        let _ = file.set_times(FileTimes::new().set_accessed(SystemTime::now()));
        Some(content)
    }
}

impl Room {
    /// Measures the room in the folder.
    fn of(options: &UnpackFolder) -> Self {
        let kept = used_names(&options.path);
        let known = |file: fs::DirEntry| {
            let (path, metadata) = (file.path(), file.metadata().ok().filter(fs::Metadata::is_file)?);
            let time = metadata.accessed().or_else(|_| metadata.modified()).ok()?;
            is_shard(&path).then_some((time, path, metadata.len()))
        };
        let files: Vec<_> = fs::read_dir(&options.path).into_iter().flatten().flatten().filter_map(known).collect();
        let used = files.iter().map(|(_, _, size)| size).sum();
        let mut others: Vec<_> = files.into_iter().filter(|(_, path, _)| !kept.contains(&hash_of(path))).collect();
        others.sort_by(|a, b| b.cmp(a));
        Self { used, others }
    }

    /// Takes room for `bytes`, and deletes shards for it that no process reads.
    fn take(&mut self, bytes: u64, limit: Bytes) -> io::Result<()> {
        while self.used + bytes > limit.0 {
            let Some((_, path, size)) = self.others.pop() else {
                return Err(too_large(Bytes(self.used + bytes), limit));
            };
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.used -= size,
            }
        }
        self.used += bytes;
        Ok(())
    }
}

/// Notes that this process reads `shards`, until it ends.
fn note_use(folder: &Path, shards: &[Packed]) -> io::Result<()> {
    let mut lists = USED.lock().unwrap_or_else(PoisonError::into_inner);
    if !lists.contains_key(folder) {
        let list = folder.join(format!("{}.used", std::process::id()));
        let file = OpenOptions::new().append(true).create(true).open(list)?;
        file.lock_shared()?;
        lists.insert(folder.into(), file);
    }
    let names: Vec<String> = shards.iter().map(|shard| hash_of(&shard.target) + "\n").collect();
    lists.get_mut(folder).map_or(Ok(()), |file| file.write_all(names.concat().as_bytes()))
}

/// Returns the hashes of the shards that processes read now, and removes the lists of processes that ended.
fn used_names(folder: &Path) -> HashSet<String> {
    let mut names = HashSet::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = file.path();
        if path.extension().is_some_and(|extension| extension == "used")
            && let Ok(list) = File::open(&path)
        {
            match list.try_lock() {
                Ok(()) => _ = fs::remove_file(&path),
                Err(_) => names.extend(fs::read_to_string(&path).unwrap_or_default().lines().map(String::from)),
            }
        }
    }
    names
}

/// Returns the part of a file name before its first dot.
fn hash_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Whether a file of the folder is a shard that was unpacked into it.
fn is_shard(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.split_once('.').is_some_and(|(hash, rest)| is_hash(hash) && ["tar", "damaged.tar"].contains(&rest))
}

fn too_large(size: Bytes, limit: Bytes) -> io::Error {
    io::Error::other(format!(
        "the folder would hold {size} or more, with what other processes read now, and may hold {limit}"
    ))
}

fn not_unpacked(shard: &Path, folder: &UnpackFolder, source: io::Error) -> ImportError {
    ImportError::NotUnpacked { file: shard.into(), folder: folder.path.clone(), source }
}
