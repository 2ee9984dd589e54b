//! Finds NVIDIA's library of math functions, `libdevice.10.bc`, for kernels of the CUDA backend.
//!
//! A CUDA toolkit has the file, and a driver does not. `cargo xtask cuda setup` puts it into the data folder of Plimsoll, for
//! machines without a toolkit. Burn's backend looks into the folder that `CUDA_PATH` names and into those of toolkits, and
//! fails at the first kernel that needs the file. `xtask/src/cuda/libdevice.rs` has the same order.

use std::env;
use std::path::{Path, PathBuf};

/// Place of the file in a CUDA folder.
const FILE: &str = "nvvm/libdevice/libdevice.10.bc";
/// Folders of installed toolkits.
const TOOLKITS: [&str; 4] = ["/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr"];

/// Sets the environment variable `CUDA_PATH` to the folder with `libdevice.10.bc`, if the backend would not find the file by
/// itself.
///
/// # Safety
/// No other thread may run: environment variables are not synchronized.
pub unsafe fn set_cuda_path() {
    let path = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let named = env::var_os("CUDA_PATH").filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = path("XDG_DATA_HOME").or_else(|| Some(path("HOME")?.join(".local/share")));
    let Some(folder) = folder(named.as_deref(), data.as_deref(), Path::is_file) else { return };
    if named.as_ref() != Some(&folder) {
        // SAFETY: the caller guarantees that no other thread runs.
        unsafe { env::set_var("CUDA_PATH", &folder) };
    }
}

/// Returns the first folder that has the file: the one `named` by the variable, those of toolkits, and the one in the folder
/// `data` of the person's programs.
fn folder(named: Option<&Path>, data: Option<&Path>, has: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let toolkits = TOOLKITS.iter().map(PathBuf::from);
    let own = data.map(|data| data.join("plimsoll/cuda"));
    let mut all = named.map(Path::to_owned).into_iter().chain(toolkits).chain(own);
    all.find(|folder| has(&folder.join(FILE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_the_file_is_taken() {
        let all = ["/named", "/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr", "/data/plimsoll/cuda"];
        for present in 0_u32..1 << all.len() {
            let exists = |place: usize| present & (1 << place) != 0;
            let has = |path: &Path| {
                all.iter().enumerate().any(|(place, root)| exists(place) && path == Path::new(root).join(FILE))
            };
            let found = |named: Option<&str>| folder(named.map(Path::new), Some(Path::new("/data")), has);
            let first =
                |from: usize| (from..all.len()).find(|&place| exists(place)).map(|place| PathBuf::from(all[place]));
            assert_eq!(found(Some("/named")), first(0), "{present:b}");
            assert_eq!(found(None), first(1), "{present:b}");
        }
    }
}
