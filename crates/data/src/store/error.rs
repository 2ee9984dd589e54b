//! Errors of a store's folder.

use std::io;
use std::path::PathBuf;

/// Why a store's folder cannot be opened, read or cleared.
///
/// Once a store is open, a failing disk is not an error: see [`Store::put`](crate::Store::put).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder cannot be created.
    #[error("cannot create the folder {} for stored features", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder or a file in it cannot be read.
    #[error("cannot read stored features in {}", path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file cannot be deleted.
    #[error("cannot delete stored features in {}", path.display())]
    Delete {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
