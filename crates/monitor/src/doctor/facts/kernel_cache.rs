//! Where CubeCL, the compiler of GPU kernels, keeps compiled kernels and the results of tuning them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{metadata, read_to_string, remove_file};
use std::path::{Path, PathBuf};

use plimsoll_core::Bytes;
use serde::Deserialize;

/// Names of the settings of CubeCL, from the current folder upwards. The first that can be read counts.
const FILES: [&str; 2] = ["cubecl.toml", "CubeCL.toml"];
/// Settings of Burn, which hold those of CubeCL in a section.
const FILES_OF_BURN: [&str; 2] = ["burn.toml", "Burn.toml"];
/// Section of CubeCL in the settings of Burn.
const SECTION: &str = "cubecl";

/// Endings of the files of the database: itself, its write-ahead log, and the index of the log.
const ENDINGS: [&str; 3] = ["", "-wal", "-tshm"];
/// Size from which a run begins a new file. One build of a program wrote 9 MiB for a model on
/// an H200, and no other build reads its kernels.
const SIZE_MAX: Bytes = Bytes::gib(1);

/// File in which CubeCL keeps compiled kernels and the results of tuning them.
///
/// There is a file for each named environment of CubeCL. It is in the cache folder of the user, unless `cubecl.toml` names
/// another folder. Several processes can use it at the same time; kernels of another build of the program or for another
/// GPU have other keys in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCache {
    /// Path of the file. It may not exist yet.
    pub file: PathBuf,
    /// Whether the settings turn the file off, so that each process tunes its kernels again.
    pub is_disabled: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Settings {
    environment: Environment,
    autotune: Autotune,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Environment {
    name: Option<String>,
    path: Place,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Autotune {
    disable_cache: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    Local,
    #[default]
    Target,
    Global,
    Directory(PathBuf),
}

impl KernelCache {
    /// Finds the file for this process.
    pub fn for_process() -> Self {
        let text = |word: OsString| word.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(key, value)| (text(key), text(value))).collect();
        Self::find(&variables, &std::env::current_dir().unwrap_or_default(), &std::env::temp_dir())
    }

    /// Returns the folder of the file.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap_or(&self.file)
    }

    /// Computes the size of the file with the log of its database; `None` if there is no file.
    pub fn size(&self) -> Option<Bytes> {
        let size = |ending: &&str| metadata(self.part(ending)).ok().map(|file| file.len());
        let main = size(&ENDINGS[0])?;
        Some(Bytes(main + ENDINGS[1..].iter().filter_map(size).sum::<u64>()))
    }

    /// Removes the file if it is larger than 1 GiB, and returns whether it did. A process that has it open keeps it until the
    /// process ends.
    pub fn remove_if_large(&self) -> bool {
        self.remove_above(SIZE_MAX)
    }

    fn remove_above(&self, most: Bytes) -> bool {
        let is_large = self.size().is_some_and(|size| size > most);
        is_large && ENDINGS.iter().rev().fold(false, |_, ending| remove_file(self.part(ending)).is_ok())
    }

    /// Returns the path of a file of the database: `ending` is empty, or `-wal` for its log.
    pub(in crate::doctor) fn part(&self, ending: &str) -> PathBuf {
        let mut name = self.file.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    /// Finds the file for a process that starts in `current`.
    pub(super) fn find(variables: &BTreeMap<String, String>, current: &Path, temp: &Path) -> Self {
        let Settings { environment: Environment { name, path }, autotune } = Settings::read(current);
        let name = variables.get("CUBECL_ENVIRONMENT").cloned().or(name).unwrap_or_default();
        let folder = match path {
            Place::Local => current.into(),
            // CubeCL's default is the folder of the build, where each working tree would compile its own.
            Place::Target | Place::Global => user_cache(&|name| variables.get(name).map(Into::into))
                .unwrap_or_else(|| temp.into())
                .join("plimsoll/kernels"),
            Place::Directory(folder) => current.join(folder),
        };
        let is_disabled = match variables.get("CUBECL_AUTOTUNE_CACHE").map(String::as_str) {
            Some("true" | "1" | "on") => false,
            Some("false" | "0" | "off") => true,
            _ => autotune.disable_cache,
        };
        Self { file: folder.join(format!("{}.db", file_name(&name))), is_disabled }
    }
}

impl Settings {
    fn read(current: &Path) -> Self {
        let in_folder = |folder: &Path| {
            let own = FILES.iter().find_map(|name| toml::from_str(&read_to_string(folder.join(name)).ok()?).ok());
            let section = |name: &&str| -> Option<Self> {
                let mut table: toml::Table = toml::from_str(&read_to_string(folder.join(name)).ok()?).ok()?;
                table.remove(SECTION)?.try_into().ok()
            };
            own.or_else(|| FILES_OF_BURN.iter().find_map(section))
        };
        current.ancestors().find_map(in_folder).unwrap_or_default()
    }
}

/// Returns the folder for caches of this user (XDG Base Directory Specification).
pub fn user_cache(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if cfg!(windows) {
        return absolute("LOCALAPPDATA");
    }
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Returns the name of an environment as a file name, without characters that could lead out of the folder.
fn file_name(name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let safe: String = name.chars().map(|c| if is_safe(c) { c } else { '_' }).collect();
    if safe.chars().all(|c| c == '.') { "default".into() } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(current: &Path, pairs: &[(&str, &str)]) -> KernelCache {
        let variables = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        KernelCache::find(&variables, current, Path::new("/tmp"))
    }

    #[test]
    #[cfg(unix)]
    fn the_file_is_in_the_cache_folder_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let home = [("HOME", "/home/ann")];
        // A workspace around the current folder changes nothing.
        std::fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        let find = |variables: &[(&str, &str)]| find(folder.path(), variables).file;
        assert_eq!(find(&home), Path::new("/home/ann/.cache/plimsoll/kernels/default.db"));
        assert_eq!(find(&[("XDG_CACHE_HOME", "/c")]), Path::new("/c/plimsoll/kernels/default.db"));
        assert_eq!(find(&[("XDG_CACHE_HOME", "c")]), Path::new("/tmp/plimsoll/kernels/default.db"));
    }

    #[test]
    fn a_large_file_is_removed_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let cache = KernelCache { file: folder.path().join("default.db"), is_disabled: false };
        assert!(!cache.remove_if_large() && cache.size().is_none(), "there is no file");
        for (ending, bytes) in ["", "-wal", "-tshm"].into_iter().zip([10, 20, 30]) {
            std::fs::write(cache.part(ending), vec![0; bytes]).unwrap();
        }
        std::fs::write(folder.path().join("other.db"), "").unwrap();
        assert_eq!(cache.size(), Some(Bytes(60)));
        assert!(!cache.remove_above(Bytes(60)));
        assert!(cache.remove_above(Bytes(59)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the log goes too, other files stay");
    }

    #[test]
    #[cfg(unix)]
    fn settings_and_variables_move_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a");
        std::fs::create_dir(&inner).unwrap();
        let check = |name: &str, text: &str, pairs: &[(&str, &str)], file: PathBuf, is_disabled| {
            std::fs::write(folder.path().join(name), text).unwrap();
            assert_eq!(find(&inner, pairs), KernelCache { file, is_disabled }, "{name} {text}");
            remove_file(folder.path().join(name)).unwrap();
        };
        let (home, env) = (("HOME", "/h"), "[environment]\npath = ");
        let own = "cubecl.toml";
        check(own, &format!("{env}\"local\"\n"), &[home], inner.join("default.db"), false);
        check(
            own,
            &format!("{env}\"global\"\nname = \"h100\"\n"),
            &[home],
            "/h/.cache/plimsoll/kernels/h100.db".into(),
            false,
        );
        check(own, &format!("{env}{{ directory = \"/x\" }}\n"), &[home], "/x/default.db".into(), false);
        check("burn.toml", "[cubecl.environment]\npath = { directory = \"/x\" }\n", &[], "/x/default.db".into(), false);
        check(own, "[autotune]\ndisable_cache = true\n", &[home], "/h/.cache/plimsoll/kernels/default.db".into(), true);
        let on = ("CUBECL_AUTOTUNE_CACHE", "on");
        check(
            own,
            "[autotune]\ndisable_cache = true\n",
            &[home, on],
            "/h/.cache/plimsoll/kernels/default.db".into(),
            false,
        );
        let (off, named) = (("CUBECL_AUTOTUNE_CACHE", "0"), ("CUBECL_ENVIRONMENT", "../a b"));
        check(own, "not = toml = at all", &[home, off, named], "/h/.cache/plimsoll/kernels/.._a_b.db".into(), true);
        check(
            "other.toml",
            "",
            &[home, ("CUBECL_ENVIRONMENT", "..")],
            "/h/.cache/plimsoll/kernels/default.db".into(),
            false,
        );
    }
}
