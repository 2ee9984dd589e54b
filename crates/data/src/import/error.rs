//! Errors of reading a whole corpus.

use std::io;
use std::path::PathBuf;

use super::format::Format;

/// Reason why a whole corpus cannot be read. A bad line is not an error but an [`Issue`](crate::Issue).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The path is neither a file nor a folder.
    #[error("corpus {} does not exist", .0.display())]
    NotFound(PathBuf),
    /// The files have none of the known layouts.
    #[error("{} is not a corpus in a known layout; looked for {}", .0.display(), looked_for())]
    UnknownFormat(PathBuf),
    /// The files do not have the layout that was given.
    #[error("{} is not of the format `{format}`, which has {}", path.display(), format.marker_files())]
    WrongFormat {
        /// File or folder of the corpus.
        path: PathBuf,
        /// Layout that was given.
        format: Format,
    },
    /// The files are known, but cannot be read as a corpus.
    #[error("{} {found}; {advice}", path.display())]
    NotReadable {
        /// File or folder of the corpus.
        path: PathBuf,
        /// Description of the files that were found.
        found: String,
        /// What to do instead.
        advice: String,
    },
    /// A required list exists but cannot be read.
    #[error("cannot read {}", file.display())]
    Unreadable {
        /// List that cannot be read.
        file: PathBuf,
        /// Error of the operating system while reading.
        source: io::Error,
    },
    /// A compressed shard cannot be unpacked.
    #[error("cannot unpack {} into {}", file.display(), folder.display())]
    NotUnpacked {
        /// The compressed shard.
        file: PathBuf,
        /// Folder that it is unpacked into.
        folder: PathBuf,
        /// Error while unpacking: of the operating system, or the limit of the folder.
        source: io::Error,
    },
    /// The lists have neither an utterance nor an issue.
    #[error("{} lists no utterance", .0.display())]
    Empty(PathBuf),
}

/// Lists every layout with the files that mark it.
fn looked_for() -> String {
    let each = Format::ALL.map(|format| format!("{} (`{format}`)", format.marker_files()));
    each.join("; ")
}
