//! Temporary file of a check.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Temporary file that is removed when it is dropped, after a panic too.
pub(super) struct TempFile {
    pub(super) file: File,
    path: PathBuf,
}

impl TempFile {
    /// Creates a file in `folder`. It never opens a file that exists: in a folder of several users, that could be a link
    /// to any file.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let path = folder.join(format!(".plimsoll-check-{}-{:x}", std::process::id(), now.as_nanos()));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Self { file, path })
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // A folder that vanished took the file along.
        let _ = std::fs::remove_file(&self.path);
    }
}
