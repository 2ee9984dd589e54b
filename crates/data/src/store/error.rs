//! Errors of a store's folder.

use std::io;
use std::path::PathBuf;

/// Reason why a store's folder cannot be opened, read or cleared.
///
/// Once a store is open, a failing disk is not an error: see [`Store::put`](crate::store::Store::put).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The folder of the store cannot be created.
    #[error("cannot create the folder {} for stored features", path.display())]
    Create {
        /// Folder of the store.
        path: PathBuf,
        /// Error of the operating system while creating.
        source: io::Error,
    },
    /// The folder of the store or a file in it cannot be read.
    #[error("cannot read stored features in {}", path.display())]
    Read {
        /// Folder or file that cannot be read.
        path: PathBuf,
        /// Error of the operating system while reading.
        source: io::Error,
    },
    /// A file of the store cannot be deleted.
    #[error("cannot delete stored features in {}", path.display())]
    Delete {
        /// File that cannot be deleted.
        path: PathBuf,
        /// Error of the operating system while deleting.
        source: io::Error,
    },
}
