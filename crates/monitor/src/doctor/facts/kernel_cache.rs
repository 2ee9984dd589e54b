//! Where CubeCL, the compiler of GPU kernels, keeps the results of tuning them.

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Names of the settings of CubeCL, from the current folder upwards. The first that can be read counts.
const FILES: [&str; 2] = ["cubecl.toml", "CubeCL.toml"];
/// Settings of Burn, which hold those of CubeCL in a section.
const FILES_OF_BURN: [&str; 2] = ["burn.toml", "Burn.toml"];
/// Section of CubeCL in the settings of Burn.
const SECTION: &str = "cubecl";

/// File in which CubeCL keeps the results of tuning kernels.
///
/// Its place follows the rules of `cubecl-environment` 0.11: a file for each named environment, in the folder `target` of
/// the outermost workspace around the current folder, or else in the cache folder of the user.
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
    /// Finds the file for a process that starts in `current`.
    pub(super) fn find(variables: &BTreeMap<String, String>, current: &Path, temp: &Path) -> Self {
        let Settings { environment: Environment { name, path }, autotune } = Settings::read(current);
        let name = variables.get("CUBECL_ENVIRONMENT").cloned().or(name).unwrap_or_default();
        let user = || user_cache(variables).unwrap_or_else(|| temp.into()).join("cubecl");
        let folder = match path {
            Place::Local => current.into(),
            Place::Target => target_folder(current).unwrap_or_else(user),
            Place::Global => user(),
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

/// Returns the folder of the cache in the outermost workspace around `current`; `None` outside of every workspace.
fn target_folder(current: &Path) -> Option<PathBuf> {
    let root = current.ancestors().filter(|folder| folder.join("Cargo.toml").exists()).last()?;
    Some(root.join("target/environment"))
}

/// Returns the folder for caches of this user (XDG Base Directory Specification).
fn user_cache(variables: &BTreeMap<String, String>) -> Option<PathBuf> {
    let absolute = |name: &str| variables.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
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
    fn the_file_is_in_the_workspace_or_in_the_cache_of_the_user() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let home = [("HOME", "/home/ann")];
        assert_eq!(find(&inner, &home).file, Path::new("/home/ann/.cache/cubecl/default.db"));
        assert_eq!(find(&inner, &[("XDG_CACHE_HOME", "/c")]).file, Path::new("/c/cubecl/default.db"));
        assert_eq!(find(&inner, &[("XDG_CACHE_HOME", "c")]).file, Path::new("/tmp/cubecl/default.db"));
        // The outermost workspace counts.
        for part in ["a/b", "a", ""] {
            let root = folder.path().join(part);
            std::fs::write(root.join("Cargo.toml"), "").unwrap();
            assert_eq!(find(&inner, &home).file, root.join("target/environment/default.db"));
        }
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
            std::fs::remove_file(folder.path().join(name)).unwrap();
        };
        let (home, env) = (("HOME", "/h"), "[environment]\npath = ");
        let own = "cubecl.toml";
        check(own, &format!("{env}\"local\"\n"), &[home], inner.join("default.db"), false);
        check(own, &format!("{env}\"global\"\nname = \"h100\"\n"), &[home], "/h/.cache/cubecl/h100.db".into(), false);
        check(own, &format!("{env}{{ directory = \"/x\" }}\n"), &[home], "/x/default.db".into(), false);
        check("burn.toml", "[cubecl.environment]\npath = { directory = \"/x\" }\n", &[], "/x/default.db".into(), false);
        check(own, "[autotune]\ndisable_cache = true\n", &[home], "/h/.cache/cubecl/default.db".into(), true);
        let on = ("CUBECL_AUTOTUNE_CACHE", "on");
        check(own, "[autotune]\ndisable_cache = true\n", &[home, on], "/h/.cache/cubecl/default.db".into(), false);
        let (off, named) = (("CUBECL_AUTOTUNE_CACHE", "0"), ("CUBECL_ENVIRONMENT", "../a b"));
        check(own, "not = toml = at all", &[home, off, named], "/h/.cache/cubecl/.._a_b.db".into(), true);
        check("other.toml", "", &[home, ("CUBECL_ENVIRONMENT", "..")], "/h/.cache/cubecl/default.db".into(), false);
    }
}
