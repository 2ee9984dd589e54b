//! Where compressed shards are unpacked.

use std::path::PathBuf;

use plimsoll_core::Bytes;

/// Folder for compressed tar shards (`.tar.gz`, `.tgz`), which are unpacked there once for all runs.
///
/// Runs that use different corpora at the same time need room for all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct UnpackFolder {
    /// The folder. It is made when it is needed.
    pub path: PathBuf,
    /// Largest size of all files in it. The files whose last use is the longest ago are deleted first.
    pub limit: Bytes,
}
