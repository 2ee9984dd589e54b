//! Files that a command writes: checked before the work, written beside their place and then renamed.
//!
//! A command that fails or is killed leaves an older file as it was. A link keeps pointing to its file, a device or a pipe is
//! written to and never replaced, and `-` or `/dev/stdout` is standard output.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll_core::{Draft, replace_file};
use plimsoll_recipes::{Failure, FailureExt};

use crate::print::{keep_output_for_file, write_out};

/// The flag `--force` of the commands that write files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct ForceFlag {
    /// Overwrite output files that exist.
    #[arg(long)]
    pub(crate) force: bool,
}

/// A file to write, checked: it does not exist or may be overwritten, and its folder can be written to.
#[derive(Clone, Debug)]
pub(crate) struct OutputFile {
    /// Path as it was given.
    given: PathBuf,
    destination: Destination,
}

/// Endings of names that stand for a format. A file with other bytes under such a name is opened by the wrong program.
const FORMATS: [&str; 38] = [
    "wav", "flac", "mp3", "ogg", "oga", "opus", "m4a", "aac", "wma", "aif", "aiff", "amr", "mp4", "mov", "mkv", "webm",
    "svg", "png", "jpg", "jpeg", "gif", "pdf", "html", "htm", "json", "jsonl", "csv", "tsv", "txt", "md", "srt", "vtt",
    "ctm", "textgrid", "toml", "yaml", "yml", "arpa",
];

/// Endings of the name of a page.
pub(crate) const HTML: &[&str] = &["html", "htm"];

/// Place where the bytes go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Destination {
    /// Standard output of this process.
    Stdout,
    /// A device, a pipe, or a file that a process has open: written to, and never replaced.
    Stream(PathBuf),
    /// A file, with all links resolved.
    File(PathBuf),
}

/// Error while a file is written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
struct WriteError {
    path: PathBuf,
    source: io::Error,
}

impl OutputFile {
    /// Checks that a file can be written at `path`, which the flag `flag` named. An existing file needs `force`. The first of
    /// `endings` is the usual ending of the name of such a file.
    ///
    /// # Errors
    /// If the file exists already, is a folder or a disk, if its folder does not exist or cannot be written to, or if its name
    /// has the ending of a format that is not in `endings`.
    pub(crate) fn new(path: &Path, flag: &str, force: ForceFlag, endings: &[&str]) -> Result<Self, Failure> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
        if FORMATS.contains(&&*ending) && !endings.iter().any(|own| own.eq_ignore_ascii_case(&ending)) {
            let message = format!("{} ends in .{ending}, and {flag} writes no such file", path.display());
            let names: Vec<String> = endings.iter().map(|ending| format!(".{ending}")).collect();
            return Err(Failure::invalid(message, format!("name a file that ends in {}", names.join(" or "))));
        }
        let given = path.to_path_buf();
        let destination = destination(path).map_err(|reason| unwritable(path, flag, &reason))?;
        if let Destination::File(file) = &destination {
            if file.exists() && !force.force {
                let message = format!("{} exists already", path.display());
                return Err(Failure::invalid(message, format!("choose another {flag}, or overwrite it with --force")));
            }
            // A wrong path fails now, and not after an hour of work.
            Draft::file(file).map_err(|error| unwritable(path, flag, &error.to_string()))?;
        }
        if destination == Destination::Stdout {
            keep_output_for_file();
        }
        Ok(Self { given, destination })
    }

    /// Returns the path of the file, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.given
    }

    /// Writes `bytes` as the content of the file.
    ///
    /// # Errors
    /// If the file cannot be written. Nothing is left behind, and an older file is unchanged.
    pub(crate) fn write(&self, bytes: impl AsRef<[u8]>) -> Result<(), Failure> {
        let bytes = bytes.as_ref();
        let written = match &self.destination {
            Destination::Stdout => {
                write_out(bytes);
                Ok(())
            }
            Destination::Stream(path) => {
                File::options().append(true).open(path).and_then(|mut file| file.write_all(bytes))
            }
            Destination::File(path) => replace_file(path, |file| file.write_all(bytes)),
        };
        written.map_err(|source| WriteError { path: self.given.clone(), source }).failed()
    }

    /// Has `write` write the file at a path beside its place, and then moves it there.
    ///
    /// # Errors
    /// The error of `write`, or if the file cannot be moved.
    pub(crate) fn write_with(&self, write: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<(), Failure> {
        let error = |source| WriteError { path: self.given.clone(), source };
        if let Destination::File(path) = &self.destination {
            let (draft, _) = Draft::file(path).map_err(error).failed()?;
            write(draft.path())?;
            // By its path: the file may have been written again under the same name.
            let synced = File::open(draft.path()).and_then(|file| file.sync_all());
            return synced.and_then(|()| draft.finish(path)).map_err(error).failed();
        }
        // In a folder of its own: a list of files must not have paths relative to a folder for temporary files.
        let folder = Draft::folder(&std::env::temp_dir().join("plimsoll")).map_err(error).failed()?;
        let path = folder.path().join("stream");
        write(&path)?;
        self.write(fs::read(path).map_err(error).failed()?)
    }
}

/// Returns the place that `path` stands for, or the reason why nothing can be written there.
fn destination(path: &Path) -> Result<Destination, String> {
    let is_stdout = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name));
    if is_stdout {
        return Ok(Destination::Stdout);
    }
    let is_open_file = ["/dev/fd", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder));
    if is_open_file || path == Path::new("/dev/stderr") {
        return Ok(Destination::Stream(path.into()));
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            path.canonicalize().map(Destination::File).map_err(|error| error.to_string())
        }
        Ok(metadata) if metadata.is_dir() => Err("it is a folder".into()),
        Ok(metadata) if is_disk_or_socket(&metadata) => Err("it is a disk or a socket".into()),
        Ok(_) => Ok(Destination::Stream(path.into())),
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            Err("it is a link to a file that does not exist".into())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => match path.file_name() {
            Some(_) => Ok(Destination::File(path.into())),
            None => Err("it is not the name of a file".into()),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// Returns whether the file is a disk, whose content must never be overwritten, or a socket, which cannot be opened.
#[cfg(unix)]
fn is_disk_or_socket(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    metadata.file_type().is_block_device() || metadata.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_disk_or_socket(_: &fs::Metadata) -> bool {
    false
}

fn unwritable(path: &Path, flag: &str, reason: &str) -> Failure {
    let message = format!("cannot write {}: {reason}", path.display());
    Failure::invalid(
        message,
        format!("{flag} takes the name of a file in a folder that exists, or `-` for standard output"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORCE: ForceFlag = ForceFlag { force: true };

    /// Lists the names in a folder with the content of each file.
    fn content(folder: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = entries
            .map(|path| {
                (
                    path.file_name().unwrap().to_string_lossy().into_owned(),
                    fs::read_to_string(&path).unwrap_or_default(),
                )
            })
            .collect();
        all.sort();
        all
    }

    fn pairs(names: &[(&str, &str)]) -> Vec<(String, String)> {
        names.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
    }

    #[test]
    fn existing_file_is_replaced_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        OutputFile::new(&path, "--out", ForceFlag::default(), &["txt"]).unwrap().write("one").unwrap();
        let refused = OutputFile::new(&path, "--out", ForceFlag::default(), &["txt"]).unwrap_err();
        assert!(refused.to_string().contains("exists already"), "{refused}");
        OutputFile::new(&path, "--out", FORCE, &["txt"]).unwrap().write("two").unwrap();
        assert_eq!(content(folder.path()), pairs(&[("a.txt", "two")]));
    }

    /// Writers that fail, at every kind of path: nothing is left behind, and what was there is unchanged.
    #[test]
    fn failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::create_dir(at("dir")).unwrap();
        let before = content(folder.path());
        for name in ["old", "new"] {
            let file = OutputFile::new(&at(name), "--out", FORCE, &["txt"]).unwrap();
            let failed = file.write_with(|draft| {
                fs::write(draft, "half").unwrap();
                Err(Failure::invalid("no", "never"))
            });
            assert!(failed.is_err(), "{name}");
        }
        for name in ["dir", "missing/file", "old/file", ".."] {
            assert!(OutputFile::new(&at(name), "--out", FORCE, &["txt"]).is_err(), "{name}");
        }
        assert_eq!(content(folder.path()), before);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_never_replaced() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        for write_by in ["bytes", "path"] {
            let write = |name: &str| {
                let file = OutputFile::new(&at(name), "--out", FORCE, &["txt"])?;
                match write_by {
                    "bytes" => file.write("new"),
                    _ => file.write_with(|draft| fs::write(draft, "new").failed()),
                }
            };
            write("link").unwrap();
            write("null").unwrap();
            assert!(write("dangling").is_err());
        }
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "new");
        assert!(["link", "dangling", "null"].iter().all(|name| at(name).is_symlink()));
        assert_eq!(content(folder.path()).len(), 4);
    }

    #[test]
    fn a_name_of_another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str, endings: &[&str]| OutputFile::new(&folder.path().join(name), "--out", FORCE, endings);
        for format in FORMATS {
            let upper = format.to_uppercase();
            for name in [format!("a.{format}"), format!("a.{upper}"), format!("a.b.{format}")] {
                assert!(made(&name, &[format]).is_ok(), "{name}");
                let refused = made(&name, &["part"]).unwrap_err().to_string();
                assert!(refused.contains(&format!("ends in .{format}")), "{refused}");
            }
        }
        for name in ["a", "a.1", "take.final", ".hidden", "wav", "a.wav.part"] {
            assert!(made(name, &["flac"]).is_ok(), "{name}");
        }
    }

    #[test]
    fn dash_is_standard_output() {
        for name in ["-", "/dev/stdout", "/dev/fd/1"] {
            assert!(destination(Path::new(name)) == Ok(Destination::Stdout), "{name}");
        }
    }
}
