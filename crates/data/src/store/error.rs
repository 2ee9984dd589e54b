//! Why there is no store.

use std::io;
use std::path::PathBuf;

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be made.
    #[error("cannot make the folder {} for stored features", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The folder or a file in it cannot be read.
    #[error("cannot read stored features in {}", path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be deleted.
    #[error("cannot delete stored features in {}", path.display())]
    Delete {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
