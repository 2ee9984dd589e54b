//! Opens regular files only: a named pipe blocks its reader until something writes to it, and a device may never end.

use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Read};
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

/// Opens a text or another file that is read from its beginning to its end: a regular file, or a stream that this process
/// got from its shell, such as `/dev/stdin` or the `/dev/fd/63` of a command in `<(...)`.
///
/// # Errors
/// In the same cases as [`open_regular_file`], except for such a stream.
pub fn open_text_file(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let folders = ["/dev/fd", "/proc/self/fd"];
    match path == Path::new("/dev/stdin") || folders.iter().any(|folder| path.starts_with(folder)) {
        true => File::open(path),
        false => open_regular_file(path),
    }
}

/// Reads a text file in UTF-8, opened by [`open_text_file`].
///
/// # Errors
/// In the same cases as [`open_text_file`], and if the file cannot be read or is not UTF-8.
pub fn read_text_file(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    open_text_file(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Reads the bytes of a regular file.
///
/// # Errors
/// In the same cases as [`open_regular_file`], and if the file cannot be read.
pub fn read_regular_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
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

        use tempfile::TempDir;

        use super::*;

        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "x").unwrap();
        symlink("file", path("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_regular_file(path(name)).unwrap(), b"x");
            assert_eq!(read_text_file(path(name)).unwrap(), "x");
        }
        fs::create_dir(path("folder")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        symlink("pipe", path("link to pipe")).unwrap();
        symlink("gone", path("dangling")).unwrap();
        symlink("loop", path("loop")).unwrap();
        for (name, expected) in [
            ("folder", "it is a folder, not a file"),
            ("pipe", "it is a named pipe, not a file"),
            ("socket", "it is a socket, not a file"),
            ("zero", "it is a device, not a file"),
            ("link to pipe", "it is a named pipe, not a file"),
            ("dangling", "it is a link to gone, which does not exist"),
            ("loop", "Too many levels of symbolic links"),
            ("missing", "No such file"),
        ] {
            let path = path(name);
            let errors = [
                open_regular_file(&path).unwrap_err(),
                read_regular_file(&path).unwrap_err(),
                open_text_file(&path).unwrap_err(),
                read_text_file(&path).unwrap_err(),
            ];
            assert!(errors.iter().all(|error| error.to_string().contains(expected)), "{name}: {errors:?}");
        }
    }
}
