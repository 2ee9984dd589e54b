//! Where the library of mathematical functions for NVIDIA GPUs, `libdevice.10.bc`, is searched, and in which order.
//!
//! The backend looks in the folder that `CUDA_PATH` names. Without the variable it takes the first of four folders that
//! holds `nvvm/libdevice`. A kernel that calls a function such as `exp` does not compile without the file.
//!
//! The program searches in this order, and sets `CUDA_PATH` where the backend would find nothing:
//! 1. the folder that `CUDA_PATH` names, if the file is in it;
//! 2. `/usr/local/cuda`, `/opt/cuda`, `/usr/lib/cuda`, `/usr`;
//! 3. `plimsoll/cuda` in the user's data folder, which `cargo xtask cuda setup` fills.

use std::path::{Path, PathBuf};

/// Path of the file below each of the folders.
pub(super) const FILE: &str = "nvvm/libdevice/libdevice.10.bc";
/// Folders of toolkits, in the order in which the backend tries them (`nvptx/libdevice.rs` of cubecl-llvm 0.11.3).
pub(super) const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// Kind of the folder that holds the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `CUDA_PATH` names the folder.
    CudaPath,
    /// The folder is one of [`TOOLKITS`].
    Toolkit,
    /// The folder is that of Plimsoll, in the user's data folder.
    Data,
}

/// The folder that holds the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) folder: PathBuf,
    pub(super) place: Place,
}

/// Finds the folder. `has_file` returns whether a path is an existing file.
pub(super) fn search(
    cuda_path: Option<&Path>,
    data_folder: Option<&Path>,
    has_file: impl Fn(&Path) -> bool,
) -> Option<Found> {
    let named = cuda_path.map(|folder| (folder, Place::CudaPath));
    let toolkits = TOOLKITS.iter().map(|folder| (Path::new(folder), Place::Toolkit));
    let data = data_folder.map(|folder| (folder, Place::Data));
    let mut all = named.into_iter().chain(toolkits).chain(data);
    let (folder, place) = all.find(|(folder, _)| has_file(&folder.join(FILE)))?;
    Some(Found { folder: folder.to_owned(), place })
}

/// Returns whether the program finds the file on this machine.
pub(crate) fn is_found() -> bool {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = data_folder(path("XDG_DATA_HOME").as_deref(), path("HOME").as_deref());
    search(path("CUDA_PATH").as_deref(), data.as_deref(), Path::is_file).is_some()
}

/// Returns the folder of Plimsoll for the file, from the values of `XDG_DATA_HOME` and `HOME`. As in the specification of
/// the variable, a relative path does not count.
pub(super) fn data_folder(xdg_data_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    Some(data_home(xdg_data_home, home)?.join("plimsoll/cuda"))
}

/// Returns the user's data folder.
pub(super) fn data_home(xdg_data_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let named = xdg_data_home.filter(|path| path.is_absolute()).map(Path::to_owned);
    named.or_else(|| Some(home.filter(|path| path.is_absolute())?.join(".local/share")))
}

/// Returns whether these bytes begin as a file of LLVM bitcode does, with or without a wrapper.
pub(super) fn is_bitcode(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BC\xC0\xDE") || bytes.starts_with(&[0xDE, 0xC0, 0x17, 0x0B])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the folders in the order of the search.
    fn in_order() -> Vec<(&'static str, Place)> {
        let toolkits = TOOLKITS.map(|folder| (folder, Place::Toolkit));
        [&[("/cuda-12", Place::CudaPath)], &toolkits[..], &[("/data/plimsoll/cuda", Place::Data)]].concat()
    }

    #[test]
    fn the_first_folder_with_the_file_is_taken() {
        let order = in_order();
        // Every subset of the folders may hold the file.
        for subset in 0_u32..1 << order.len() {
            let holds = |idx: usize| subset & (1 << idx) != 0;
            let has_file = |path: &Path| {
                let idx = order.iter().position(|(folder, _)| path == Path::new(folder).join(FILE));
                holds(idx.expect("only the known folders are searched"))
            };
            for is_named in [true, false] {
                let found =
                    search(is_named.then_some(Path::new("/cuda-12")), Some(Path::new("/data/plimsoll/cuda")), has_file);
                let first = if is_named { 0 } else { 1 };
                let expected = (first..order.len()).find(|idx| holds(*idx)).map(|idx| order[idx]);
                let found = found.as_ref().map(|found| (found.folder.to_str().unwrap(), found.place));
                assert_eq!(found, expected, "{subset:b} {is_named}");
            }
        }
    }

    #[test]
    fn the_data_folder_follows_the_variables() {
        let of = |xdg: Option<&str>, home: Option<&str>| {
            data_folder(xdg.map(Path::new), home.map(Path::new)).map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(of(Some("/data"), Some("/home/ann")).as_deref(), Some("/data/plimsoll/cuda"));
        assert_eq!(of(None, Some("/home/ann")).as_deref(), Some("/home/ann/.local/share/plimsoll/cuda"));
        for relative in ["", "data", "./data"] {
            assert_eq!(of(Some(relative), Some("/home/ann")), of(None, Some("/home/ann")), "{relative}");
        }
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some("/data"), None).as_deref(), Some("/data/plimsoll/cuda"));
    }

    #[test]
    fn bitcode_is_known_by_its_first_bytes() {
        assert!(is_bitcode(b"BC\xC0\xDE\x35\x14"));
        assert!(is_bitcode(&[0xDE, 0xC0, 0x17, 0x0B, 0]));
        for other in [&b""[..], b"BC", b"<!DOCTYPE html>", b"PK\x03\x04"] {
            assert!(!is_bitcode(other), "{other:?}");
        }
    }
}
