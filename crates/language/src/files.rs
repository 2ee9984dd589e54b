//! Files that are written whole or not at all.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use plimsoll_core::replace_file;

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
    replace_file(path, write).map_err(LanguageError::write(path))
}
