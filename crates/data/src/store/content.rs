//! Content hashes of audio, remembered by path, size and modification time.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path};
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_128_with_seed};

use super::key::StoreKey;
use super::record::{self, Payload};
use super::{Store, lock};
use plimsoll_audio::AudioSource;

/// Smallest age of a modification time that can be relied on: a younger file may change again with an equal
/// modification time. FAT, the coarsest file system clock in use, counts in steps of two seconds.
const CLOCK_STEP: Duration = Duration::from_secs(2);

impl Store {
    /// Computes a hash of the content of `file`, or of the part of a container or the channel that its path names, see
    /// [`AudioSource`].
    ///
    /// The hash is remembered by the path, size and modification time of the file, so an unchanged file is read only
    /// once. A file that changed within the last two seconds is read each time.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn content_hash(&self, file: &Path) -> io::Result<u128> {
        let path = path::absolute(file)?;
        let (key, _) = key_of(&path, &AudioSource::from_path(&path).metadata()?)?;
        // Also in memory, for a store that is full or cannot be written.
        if let Some(&content) = lock(&self.content_hashes).get(&key) {
            return Ok(content);
        }
        if let Some(Payload::ContentHash(content)) = self.find(key) {
            lock(&self.content_hashes).insert(key, content);
            return Ok(content);
        }
        let (content, key) = hash_file(&path)?;
        if let Some(key) = key {
            self.add_record(key, &record::content_hash_record(key, content));
            lock(&self.content_hashes).insert(key, content);
        }
        Ok(content)
    }
}

/// Computes the hash of audio, and the key to remember it by; `None` as the key if the file may still be changing.
fn hash_file(path: &Path) -> io::Result<(u128, Option<StoreKey>)> {
    let now = SystemTime::now();
    let source = AudioSource::from_path(path);
    let mut audio = source.open()?;
    let (before, modified) = key_of(path, &audio.metadata()?)?;
    let content = of_channel(hash(&mut audio)?, source.channel);
    let (after, _) = key_of(path, &audio.metadata()?)?;
    let is_settled = now.duration_since(modified).is_ok_and(|age| age >= CLOCK_STEP);
    Ok((content, (is_settled && before == after).then_some(before)))
}

/// Returns the hash of one channel of a file whose content has a hash.
fn of_channel(content: u128, channel: Option<u16>) -> u128 {
    match channel {
        Some(channel) => xxh3_128_with_seed(&content.to_le_bytes(), 1 + u64::from(channel)),
        None => content,
    }
}

fn key_of(path: &Path, metadata: &Metadata) -> io::Result<(StoreKey, SystemTime)> {
    let modified = metadata.modified()?;
    let since = match modified.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    let (size, since) = (metadata.len().to_le_bytes(), since.to_le_bytes());
    Ok((StoreKey::new(&[b"content of a file", path.as_os_str().as_bytes(), &size, &since]), modified))
}

fn hash(file: &mut impl Read) -> io::Result<u128> {
    let (mut hash, mut bytes) = (Xxh3Default::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut bytes) {
            Ok(0) => return Ok(hash.digest128()),
            Ok(read) => hash.update(&bytes[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
