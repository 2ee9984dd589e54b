//! Disk access of a checkpoint store, and recovery of its folder after a kill.

use std::fs;
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::weights::write_synced;

/// Writes the files of a checkpoint. Implemented by [`RealDisk`], and by disks that fail in tests.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Writes a whole file and returns when it is durable, even after a loss of power.
    ///
    /// # Errors
    /// If the file cannot be written.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
}

/// Disk that writes to the file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        write_synced(path, bytes)
    }
}

/// Cleans a folder of checkpoints after a kill: removes partial checkpoints, and restores checkpoints that were moved
/// aside.
pub(super) fn recover_folder(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if let Some(own) = name.strip_prefix(".aside-") {
            match folder.join(own).exists() {
                true => fs::remove_dir_all(&path)?,
                false => fs::rename(&path, folder.join(own))?,
            }
        } else if name.starts_with(".partial-") || name.starts_with(".gone-") {
            fs::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// Computes the SHA-256 checksum of a file in hexadecimal.
pub(super) fn checksum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
