//! Opens regular files only: a named pipe blocks its reader until something writes to it, and a device may never end.

use std::fs::{self, File, FileType, Metadata};
use std::io;
use std::path::Path;

/// Opens the file at `path` for reading if it is a regular file, or a link to one.
///
/// # Errors
/// When the path cannot be opened, or leads to something else than a regular file: a folder, a named pipe, a socket or
/// a device. The message then says which of them.
pub fn open_regular_file(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    // Opening is what blocks on a named pipe, so the kind of the file is read before.
    regular_file_metadata(path)?;
    File::open(path)
}

/// Reads the metadata of the regular file at `path`, without opening the file. Links are followed.
///
/// # Errors
/// In the same cases as [`open_regular_file`].
pub fn regular_file_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    let path = path.as_ref();
    let metadata = fs::metadata(path).map_err(|error| missing_target(path).unwrap_or(error))?;
    match special_name(metadata.file_type()) {
        None => Ok(metadata),
        Some(found) => Err(io::Error::other(format!("it is {found}, not a file"))),
    }
}

/// Returns the error of a link whose target does not exist; `None` for any other path.
fn missing_target(path: &Path) -> Option<io::Error> {
    let target = fs::read_link(path).ok()?;
    // A loop of links has a message of its own.
    let is_missing = fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    is_missing.then(|| io::Error::other(format!("it is a link to {}, which does not exist", target.display())))
}

/// Returns the name of a kind of file that cannot be read as a file; `None` for a regular file.
fn special_name(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        return None;
    }
    if kind.is_dir() {
        return Some("a folder");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return Some("a named pipe");
        }
        if kind.is_socket() {
            return Some("a socket");
        }
    }
    Some("a device")
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[test]
    fn only_regular_files_are_opened() {
        use std::os::unix::fs::symlink;
        use std::os::unix::net::UnixListener;
        use std::process::Command;

        use super::*;
        use crate::{AudioSegment, audio_info, read_audio, read_audio_segment, read_recording};
        use plimsoll_core::error_chain;
        use tempfile::TempDir;

        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file.wav"), "x").unwrap();
        symlink("file.wav", path("link.wav")).unwrap();
        assert!(open_regular_file(path("file.wav")).is_ok() && open_regular_file(path("link.wav")).is_ok());
        fs::create_dir(path("folder.wav")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe.wav")).status().unwrap().success());
        let _listener = UnixListener::bind(path("socket.wav")).unwrap();
        symlink("/dev/zero", path("zero.wav")).unwrap();
        symlink("pipe.wav", path("link to pipe.wav")).unwrap();
        symlink("gone.wav", path("dangling.wav")).unwrap();
        symlink("loop.wav", path("loop.wav")).unwrap();
        for (name, expected) in [
            ("folder.wav", "it is a folder, not a file"),
            ("pipe.wav", "it is a named pipe, not a file"),
            ("socket.wav", "it is a socket, not a file"),
            ("zero.wav", "it is a device, not a file"),
            ("link to pipe.wav", "it is a named pipe, not a file"),
            ("dangling.wav", "it is a link to gone.wav, which does not exist"),
            ("loop.wav", "Too many levels of symbolic links"),
        ] {
            let path = path(name);
            for error in [
                read_recording(&path).unwrap_err(),
                read_audio(&path, 8_000).unwrap_err(),
                read_audio_segment(&path, AudioSegment::default(), 8_000).unwrap_err(),
                audio_info(&path).unwrap_err(),
            ] {
                let message = error_chain(&error);
                assert!(message.starts_with("cannot read audio file ") && message.contains(expected), "{message}");
            }
        }
    }
}
