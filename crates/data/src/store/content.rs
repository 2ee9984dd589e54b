//! Hashes of files that are asked for often, kept by path, size and modification time.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{self, Path};
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::Xxh3Default;

use super::key::StoreKey;
use super::record::{self, Kept};
use super::{Store, lock};

/// A file changed less long ago may change again without its time showing it: the coarsest clock of a file system in
/// use, that of FAT, ticks every two seconds.
const SETTLED: Duration = Duration::from_secs(2);

impl Store {
    /// A hash of what is in `file`.
    ///
    /// It is kept by the file's path, size and modification time, so that an unchanged file is read once. A file that
    /// changed within the last two seconds is read each time.
    pub fn content_of(&self, file: &Path) -> io::Result<u128> {
        let path = path::absolute(file)?;
        let (key, _) = key_of(&path, &fs::metadata(&path)?)?;
        // In memory as well, for when the store is full or cannot be written.
        if let Some(&content) = lock(&self.contents).get(&key) {
            return Ok(content);
        }
        if let Some(Kept::Content(content)) = self.find(key) {
            lock(&self.contents).insert(key, content);
            return Ok(content);
        }
        let (content, key) = read_content(&path)?;
        if let Some(key) = key {
            self.keep(key, &record::of_content(key, content));
            lock(&self.contents).insert(key, content);
        }
        Ok(content)
    }
}

/// The hash, and the key to keep it by, if the file was at rest.
fn read_content(path: &Path) -> io::Result<(u128, Option<StoreKey>)> {
    let now = SystemTime::now();
    let mut file = File::open(path)?;
    let (before, modified) = key_of(path, &file.metadata()?)?;
    let content = hash(&mut file)?;
    let (after, _) = key_of(path, &file.metadata()?)?;
    let settled = now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
    Ok((content, (settled && before == after).then_some(before)))
}

fn key_of(path: &Path, metadata: &Metadata) -> io::Result<(StoreKey, SystemTime)> {
    let modified = metadata.modified()?;
    let since = match modified.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    };
    let (size, since) = (metadata.len().to_le_bytes(), since.to_le_bytes());
    Ok((StoreKey::of(&[b"content of a file", path.as_os_str().as_bytes(), &size, &since]), modified))
}

fn hash(file: &mut File) -> io::Result<u128> {
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
