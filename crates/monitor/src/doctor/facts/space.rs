//! Free space of the disk that holds a folder.

use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use sysinfo::{DiskRefreshKind, Disks};

/// Space of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct DiskSpace {
    pub(in crate::doctor) total: Bytes,
    /// Space that this user can still fill.
    pub(in crate::doctor) free: Bytes,
    /// Name of the file system, such as `ext4` or `nfs4`.
    pub(in crate::doctor) file_system: String,
    pub(in crate::doctor) read_only: bool,
}

impl DiskSpace {
    /// Reads the space of the disk that holds `folder`; `None` if the system does not list that disk.
    pub(in crate::doctor) fn read(folder: &Path) -> Option<Self> {
        let folder = nearest_existing(folder).canonicalize().ok()?;
        let disks = Disks::new_with_refreshed_list_specifics(DiskRefreshKind::nothing().with_storage());
        // Later mounts hide earlier ones at the same place, so the last of the longest counts.
        let holding = disks.list().iter().filter(|disk| folder.starts_with(disk.mount_point()));
        let disk = holding.max_by_key(|disk| disk.mount_point().as_os_str().len())?;
        Some(Self {
            total: Bytes(disk.total_space()),
            free: Bytes(disk.available_space()),
            file_system: disk.file_system().to_string_lossy().into_owned(),
            read_only: disk.is_read_only(),
        })
    }
}

/// Returns `folder`, or the nearest folder above it that exists: the folder of a run is only created by the run.
pub(in crate::doctor) fn nearest_existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    let existing = absolute.ancestors().find(|path| path.is_dir()).map(Path::to_path_buf);
    existing.unwrap_or(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_exist_yet_has_the_disk_of_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nearest_existing(&folder.path().join("runs/3")), folder.path());
        assert_eq!(nearest_existing(folder.path()), folder.path());
    }
}
