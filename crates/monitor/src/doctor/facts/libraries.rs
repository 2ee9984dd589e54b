//! Libraries and headers that the CUDA backend needs at run time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Libraries that the checks ask for, with the file names that the backend loads. The first that exists counts.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("libcuda", &["libcuda.so.1", "libcuda.so", "nvcuda.dll"]),
    ("libnvrtc", &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11"]),
    ("libnccl", &["libnccl.so", "libnccl.so.2"]),
];
/// Folders that the loader of Linux searches, besides those of its cache.
const FOLDERS: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/wsl/lib",
];
/// Place of the mathematical functions for GPUs in a folder of the CUDA toolkit.
pub(in crate::doctor) const LIBDEVICE: &str = "nvvm/libdevice/libdevice.10.bc";
/// Folders in which CubeCL looks for the CUDA toolkit, from the root of the file system.
const TOOLKITS: [&str; 4] = ["usr/local/cuda", "opt/cuda", "usr/lib/cuda", "usr"];
/// List of libraries that `ldconfig` has found.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Library that the loader of the system finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundLibrary {
    /// Name of the library without version, such as `libnvrtc`.
    pub name: String,
    /// Path of the file.
    pub path: PathBuf,
    /// Reason why the file cannot be loaded; `None` if it is a library for this processor.
    pub refusal: Option<String>,
    /// Version by the name of the file that links lead to, such as `2.27.3`; `None` if it names none.
    pub version: Option<String>,
}

/// Folder of the CUDA toolkit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CudaHome {
    /// Path of the folder.
    pub path: PathBuf,
    /// Whether `CUDA_PATH` names the folder.
    pub is_named: bool,
    /// Whether the folder exists.
    pub exists: bool,
    /// Whether the headers of 16-bit numbers, which every kernel includes, are in the folder.
    pub has_headers: bool,
    /// Folder with the compiler for kernels (`libnvrtc`); `None` if the toolkit does not hold it.
    pub nvrtc_folder: Option<PathBuf>,
    /// Whether the library of mathematical functions for devices (`libdevice`) is in the folder.
    pub has_libdevice: bool,
}

impl CudaHome {
    /// Finds the toolkit where the CUDA backend of Burn looks for it: in the folder that `CUDA_PATH` names, or else in
    /// the usual places.
    pub(super) fn find(variables: &BTreeMap<String, String>) -> Option<Self> {
        if let Some(path) = variables.get("CUDA_PATH") {
            return Some(Self { is_named: true, ..Self::at(Path::new(path)) });
        }
        let usual = ["/usr/local/cuda", "/opt/cuda"].into_iter().find(|path| Path::new(path).exists());
        let usual = usual.or_else(|| Path::new("/usr/bin/nvcc").exists().then_some("/usr"));
        usual.map(|path| Self::at(Path::new(path)))
    }

    fn at(path: &Path) -> Self {
        let folders = ["lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"].map(|name| path.join(name));
        let names = library_names("libnvrtc");
        let has_nvrtc = |folder: &PathBuf| names.iter().any(|name| folder.join(name).exists());
        Self {
            path: path.into(),
            is_named: false,
            exists: path.is_dir(),
            has_headers: path.join("include/cuda_fp16.h").exists(),
            nvrtc_folder: folders.into_iter().find(has_nvrtc),
            has_libdevice: path.join(LIBDEVICE).exists(),
        }
    }
}

/// Finds the libraries as the loader of Linux does: in `LD_LIBRARY_PATH`, in its cache, and in the folders of the
/// system. A library is never loaded here: its start-up code could do anything.
pub(super) fn find(variables: &BTreeMap<String, String>) -> Vec<FoundLibrary> {
    let first = variables.get("LD_LIBRARY_PATH").map(String::as_str).unwrap_or_default();
    let first: Vec<PathBuf> = first.split(':').filter(|folder| !folder.is_empty()).map(Into::into).collect();
    let cache = std::fs::read(LOADER_CACHE).unwrap_or_default();
    let last = FOLDERS.map(PathBuf::from);
    let find = |&(name, files): &(&str, &[&str])| {
        let on_path = files.iter().find_map(|file| in_folders(&first, file));
        let cached = || files.iter().find_map(|file| in_cache(&cache, file));
        let path = on_path.or_else(cached).or_else(|| files.iter().find_map(|file| in_folders(&last, file)))?;
        Some(FoundLibrary { name: name.into(), refusal: refusal(&path), version: version(&path), path })
    };
    LIBRARIES.iter().filter_map(find).collect()
}

/// Finds the mathematical functions for GPUs: in the folder that `CUDA_PATH` names, in the usual ones below `root`, and in
/// the data folder of this program, which is below that of the user (XDG Base Directory Specification).
pub(super) fn find_libdevice(variables: &BTreeMap<String, String>, root: &Path) -> Vec<PathBuf> {
    let absolute = |name: &str| variables.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let named = variables.get("CUDA_PATH").map(PathBuf::from);
    let usual = TOOLKITS.iter().map(|folder| root.join(folder));
    let folders = named.into_iter().chain(usual).chain(data.map(|data| data.join("plimsoll/cuda")));
    folders.map(|folder| folder.join(LIBDEVICE)).filter(|path| path.is_file()).collect()
}

/// Returns the version in the name of the file that `path` leads to: what follows `.so.`.
fn version(path: &Path) -> Option<String> {
    let whole = path.canonicalize().ok()?;
    let (_, version) = whole.file_name()?.to_str()?.split_once(".so.")?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.into())
}

fn library_names(library: &str) -> &'static [&'static str] {
    LIBRARIES.iter().find(|(name, _)| *name == library).map_or(&[], |(_, files)| files)
}

fn in_folders(folders: &[PathBuf], file: &str) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(file)).find(|path| path.exists())
}

/// Finds the path of `file` in the loader's cache, which holds names and paths as texts that end with a zero byte.
fn in_cache(cache: &[u8], file: &str) -> Option<PathBuf> {
    let texts = cache.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let paths = texts.filter(|text| text.starts_with('/')).map(Path::new);
    paths.filter(|path| path.file_name().is_some_and(|name| name == file)).find(|path| path.exists()).map(Into::into)
}

/// Returns the reason why the loader would refuse the file; `None` if it is a library for this processor.
fn refusal(path: &Path) -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let mut head = [0; 20];
    if let Err(error) = File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
        return Some(error.to_string());
    }
    // The header of ELF: magic bytes, 64 bits, and the machine at byte 18 (`e_machine`; System V ABI, chapter 4).
    let machine = u16::from_le_bytes([head[18], head[19]]);
    let own = match std::env::consts::ARCH {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        _ => None,
    };
    match &head[..5] {
        [0x7f, b'E', b'L', b'F', 2] if own.is_none_or(|own| own == machine) => None,
        [0x7f, b'E', b'L', b'F', _] => Some("it is for another processor".into()),
        _ => Some("it is not a library".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &Path)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, path)| ((*key).into(), path.display().to_string())).collect()
    }

    #[test]
    fn the_toolkit_is_found_where_the_variable_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("include")).unwrap();
        std::fs::create_dir_all(folder.path().join("lib64")).unwrap();
        std::fs::write(folder.path().join("include/cuda_fp16.h"), "").unwrap();
        std::fs::write(folder.path().join("lib64/libnvrtc.so.12"), "").unwrap();
        let home = CudaHome::find(&variables(&[("CUDA_PATH", folder.path())])).unwrap();
        assert!(home.is_named && home.exists && home.has_headers && !home.has_libdevice, "{home:?}");
        assert_eq!(home.nvrtc_folder, Some(folder.path().join("lib64")));
        let missing = CudaHome::find(&variables(&[("CUDA_PATH", &folder.path().join("no"))])).unwrap();
        assert!(missing.is_named && !missing.exists, "{missing:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_first_folder_counts_and_a_broken_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnccl.so.2");
        let found = || {
            let all = find(&variables(&[("LD_LIBRARY_PATH", folder.path())]));
            all.into_iter().find(|library| library.path == path).unwrap().refusal
        };
        std::fs::write(&path, "short").unwrap();
        assert!(found().is_some());
        std::fs::write(&path, "a text that is not a library").unwrap();
        assert_eq!(found().as_deref(), Some("it is not a library"));
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        assert_eq!(found(), None);
    }

    #[test]
    fn libdevice_is_found_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (named, data) = (folder.path().join("named"), folder.path().join("data"));
        let mut pairs = variables(&[("CUDA_PATH", &named), ("XDG_DATA_HOME", &data)]);
        let places = ["data/plimsoll/cuda", "usr", "usr/lib/cuda", "opt/cuda", "usr/local/cuda", "named"];
        let mut expected: Vec<PathBuf> = Vec::new();
        for place in places {
            assert_eq!(find_libdevice(&pairs, folder.path()), expected);
            let path = folder.path().join(place).join(LIBDEVICE);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            // What is looked for earlier is made later.
            expected.insert(0, path);
        }
        assert_eq!(find_libdevice(&pairs, folder.path()), expected);
        pairs = variables(&[("HOME", folder.path())]);
        assert_eq!(find_libdevice(&pairs, folder.path()), expected[1..5]);
        std::fs::create_dir_all(folder.path().join(".local/share")).unwrap();
        std::fs::rename(data.join("plimsoll"), folder.path().join(".local/share/plimsoll")).unwrap();
        let last = folder.path().join(".local/share/plimsoll/cuda").join(LIBDEVICE);
        assert_eq!(find_libdevice(&pairs, folder.path()).last(), Some(&last));
    }

    #[test]
    #[cfg(unix)]
    fn a_version_is_that_of_the_linked_file() {
        let folder = tempfile::tempdir().unwrap();
        let check = |file: &str, expected: Option<&str>| {
            let (file, link) = (folder.path().join(file), folder.path().join("link"));
            std::fs::write(&file, "").unwrap();
            std::os::unix::fs::symlink(&file, &link).unwrap();
            assert_eq!(version(&link).as_deref(), expected, "{}", file.display());
            std::fs::remove_file(link).unwrap();
        };
        check("libnccl.so.2.27.3", Some("2.27.3"));
        check("libnccl.so.2", Some("2"));
        check("libnccl.so", None);
        check("libnccl.so.old", None);
        assert_eq!(version(&folder.path().join("none.so.2")), None);
    }

    #[test]
    fn the_cache_is_searched_by_file_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap();
        let cache = format!("ld.so-1.7.0\0{name}\0/no/such/{name}\0{}\0/x/other\0", file.path().display());
        assert_eq!(in_cache(cache.as_bytes(), name).as_deref(), Some(file.path()));
        assert_eq!(in_cache(cache.as_bytes(), "other"), None);
    }
}
