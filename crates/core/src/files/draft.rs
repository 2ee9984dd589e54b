//! Files and folders that are written beside their place and then renamed, so that nothing half is left.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crate::writes;

/// Paths of all drafts of this process.
static DRAFTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Number of names that are tried for a draft. A process that was killed may have left drafts of the same number.
const TRIES: u32 = 100;
/// Number of characters of a file's name in that of its draft: names have at most 255 bytes.
const NAME_CHARACTERS: usize = 40;

/// A file or a folder that is not finished: removed when dropped, and by [`remove_drafts`].
///
/// ```
/// use plimsoll_core::Draft;
/// # let folder = std::env::temp_dir();
/// # let target = folder.join(format!("draft-example-{}", std::process::id()));
///
/// let (draft, mut file) = Draft::file(&target)?;
/// std::io::Write::write_all(&mut file, b"whole")?;
/// draft.finish(&target)?;
/// assert_eq!(std::fs::read(&target)?, b"whole");
/// # std::fs::remove_file(&target)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Draft {
    path: PathBuf,
}

impl Draft {
    /// Creates the draft of the file `target`: an empty hidden file in the same folder.
    ///
    /// # Errors
    /// When no file can be created in the folder of `target`.
    pub fn file(target: &Path) -> io::Result<(Self, File)> {
        Self::create(target, |path| File::options().write(true).create_new(true).open(path))
    }

    /// Creates the draft of the folder `target`: an empty hidden folder beside it.
    ///
    /// # Errors
    /// When no folder can be created in the folder of `target`.
    pub fn folder(target: &Path) -> io::Result<Self> {
        Self::create(target, |path| fs::create_dir(path)).map(|(draft, ())| draft)
    }

    fn create<T>(target: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(Self, T)> {
        let name = target.file_name().ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
        let name: String = name.to_string_lossy().chars().take(NAME_CHARACTERS).collect();
        // Locked until the draft is known, so that `remove_drafts` misses none.
        let mut drafts = drafts();
        for number in 0..TRIES {
            let draft = OsString::from(format!(".{name}.{}-{number}.partial", std::process::id()));
            let path = target.with_file_name(draft);
            match create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => {
                    let created = created?;
                    drafts.push(path.clone());
                    return Ok((Self { path }, created));
                }
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Makes the file or folder `path` a draft: it is removed unless [`keep`](Self::keep) follows. It need not exist yet.
    pub fn of(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        drafts().push(path.clone());
        Self { path }
    }

    /// Returns the path of the draft.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Moves the draft to `target`, with the permissions of the file that it replaces.
    ///
    /// # Errors
    /// When the draft cannot be moved; it is removed then.
    pub fn finish(self, target: &Path) -> io::Result<()> {
        if let Ok(old) = fs::metadata(target)
            && old.is_file()
        {
            fs::set_permissions(&self.path, old.permissions())?;
        }
        // Locked until it is forgotten, so that `remove_drafts` does not see it with its new name only.
        let mut drafts = drafts();
        fs::rename(&self.path, target)?;
        drafts.retain(|path| *path != self.path);
        drop(drafts);
        Ok(())
    }

    /// Leaves the file or folder where it is.
    pub fn keep(self) {
        drafts().retain(|path| *path != self.path);
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let mut drafts = drafts();
        if let Some(index) = drafts.iter().position(|path| *path == self.path) {
            drafts.swap_remove(index);
            drop(drafts);
            remove(&self.path);
        }
    }
}

/// Writes the file at `path` as a draft, syncs it and moves it to its place.
///
/// # Errors
/// The error of `write`, or of the disk. An older file is then as it was, and nothing is left.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let _write = writes::begin();
    let (draft, file) = Draft::file(path)?;
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    draft.finish(path)
}

/// Removes all drafts of this process, which ends afterwards: no other thread can make or finish a draft from now on.
///
/// A handler of signals calls it before the process ends.
pub fn remove_drafts() {
    let mut drafts = drafts();
    for path in drafts.drain(..) {
        remove(&path);
    }
    std::mem::forget(drafts);
}

/// Locks the list of drafts, also after a panic of another thread, which leaves no half change in it.
fn drafts() -> MutexGuard<'static, Vec<PathBuf>> {
    DRAFTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: &Path) {
    if !path.is_dir() {
        // There is nothing to report: the file may not exist.
        let _ = fs::remove_file(path);
        return;
    }
    // Another thread may write into the folder for a moment.
    for _ in 0..20 {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => sleep(Duration::from_millis(10)),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn failed_writes_leave_the_old_file_and_nothing_else() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("ü".repeat(120));
        replace_file(&path, |file| file.write_all(b"old")).unwrap();
        let failed = replace_file(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "the disk is full");
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"old".to_vec(), 1));
        replace_file(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path()).len()), (b"new".to_vec(), 1));
    }

    #[test]
    fn dropped_drafts_are_removed_and_finished_ones_stay() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let draft = Draft::folder(&at("shards")).unwrap();
        fs::write(draft.path().join("a.tar"), "half").unwrap();
        assert_eq!(names(folder.path()).len(), 1);
        drop(draft);
        assert!(names(folder.path()).is_empty());
        let draft = Draft::folder(&at("shards")).unwrap();
        fs::write(draft.path().join("a.tar"), "whole").unwrap();
        draft.finish(&at("shards")).unwrap();
        assert_eq!(names(folder.path()), ["shards"]);
        fs::create_dir(at("made")).unwrap();
        Draft::of(at("made")).keep();
        drop(Draft::of(at("shards")));
        drop(Draft::of(at("never made")));
        assert_eq!(names(folder.path()), ["made"]);
    }
}
