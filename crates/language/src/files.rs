//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::error::LanguageError;

/// Writes a file beside its place, waits until it is on the disk, and renames it.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), LanguageError> {
    write_with(path, |file| file.write_all(bytes))
}

/// Writes a file as [`write_atomically`] does, with a function that writes the content.
pub(crate) fn write_with(
    path: &Path,
    write: impl FnOnce(&mut io::BufWriter<File>) -> io::Result<()>,
) -> Result<(), LanguageError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let draft = path.with_file_name(name);
    let written = File::create(&draft).and_then(|file| {
        let mut file = io::BufWriter::new(file);
        write(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&draft, path)
    });
    if written.is_err() {
        // The draft may not exist; the first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written.map_err(LanguageError::write(path))
}
