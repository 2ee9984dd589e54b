//! Text files and manifests of the workspace, which the rules check.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Folders of the root that git ignores. Target folders elsewhere are recognized by the tag file that cargo leaves in
/// them.
const IGNORED: &[&str] = &["target", "runs", "corpus", "shared"];
/// Hidden folders that belong to the repository.
const HIDDEN: &[&str] = &[".cargo", ".ci", ".config", ".github"];

pub(super) struct House {
    pub(super) files: Vec<TextFile>,
    /// Manifest of each member of the workspace.
    pub(super) manifests: Vec<Manifest>,
}

pub(super) struct TextFile {
    /// Path of the file from the root, with forward slashes.
    pub(super) path: String,
    pub(super) text: String,
}

pub(super) struct Manifest {
    pub(super) path: String,
    pub(super) package: String,
    pub(super) inherits_lints: bool,
    pub(super) dependencies: Vec<Dependency>,
}

pub(super) struct Dependency {
    pub(super) name: String,
    pub(super) line: usize,
    /// Whether the dependency is used by tests, examples and benchmarks alone.
    pub(super) dev: bool,
    pub(super) from_workspace: bool,
}

impl House {
    /// Reads the text files under `root`. It does not use git, so that a copy without its history can be checked too.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        walk(root, "", &mut files)?;
        files.sort();
        Self::of(files)
    }

    pub(super) fn of(files: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let files: Vec<TextFile> = files.into_iter().map(|(path, text)| TextFile { path, text }).collect();
        let manifests =
            files.iter().filter(|file| is_member(&file.path)).map(Manifest::parse).collect::<Result<_>>()?;
        Ok(Self { files, manifests })
    }

    /// Iterates over the Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }
}

impl TextFile {
    /// Returns whether the file is a test, an example or a benchmark.
    pub(super) fn only_checks_or_shows(&self) -> bool {
        let (folders, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        name == "tests.rs" || folders.split('/').any(|folder| matches!(folder, "tests" | "examples" | "benches"))
    }
}

fn is_member(path: &str) -> bool {
    matches!(*path.split('/').collect::<Vec<_>>(), ["xtask", "Cargo.toml"] | ["crates", _, "Cargo.toml"])
}

fn walk(dir: &Path, prefix: &str, files: &mut Vec<(String, String)>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // A folder in a clone, and a file in a work tree beside it.
        if name == ".git" {
            continue;
        }
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            let ignored = prefix.is_empty() && IGNORED.contains(&name.as_str());
            let hidden = name.starts_with('.') && !HIDDEN.contains(&name.as_str());
            if !ignored && !hidden && !path.join("CACHEDIR.TAG").exists() {
                walk(&path, &format!("{prefix}{name}/"), files)?;
            }
        } else if kind.is_file() {
            let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            // What is not text is a recording or a fixture, and no rule speaks of those.
            if let Ok(text) = String::from_utf8(bytes) {
                files.push((format!("{prefix}{name}"), text));
            }
        }
    }
    Ok(())
}

impl Manifest {
    fn parse(file: &TextFile) -> Result<Self> {
        let root = DeTable::parse(&file.text).with_context(|| format!("cannot read {}", file.path))?.into_inner();
        let package =
            table(&root, "package").and_then(|package| package.get("name")).and_then(|name| name.get_ref().as_str());
        let mut dependencies = Vec::new();
        collect(&root, &file.text, &mut dependencies);
        for platform in table(&root, "target").into_iter().flat_map(|target| target.values()) {
            if let Some(platform) = platform.get_ref().as_table() {
                collect(platform, &file.text, &mut dependencies);
            }
        }
        Ok(Self {
            path: file.path.clone(),
            package: package.with_context(|| format!("{} names no package", file.path))?.to_owned(),
            inherits_lints: table(&root, "lints").is_some_and(says_workspace),
            dependencies,
        })
    }
}

fn collect(from: &DeTable<'_>, text: &str, dependencies: &mut Vec<Dependency>) {
    for (kind, dev) in [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)] {
        for (name, value) in table(from, kind).into_iter().flatten() {
            dependencies.push(Dependency {
                name: name.get_ref().to_string(),
                line: line_of(text, name),
                dev,
                from_workspace: value.get_ref().as_table().is_some_and(says_workspace),
            });
        }
    }
}

pub(super) fn table<'a, 'i>(from: &'a DeTable<'i>, key: &str) -> Option<&'a DeTable<'i>> {
    from.get(key)?.get_ref().as_table()
}

fn says_workspace(table: &DeTable<'_>) -> bool {
    table.get("workspace").map(Spanned::get_ref).and_then(DeValue::as_bool) == Some(true)
}

pub(super) fn line_of<T>(text: &str, place: &Spanned<T>) -> usize {
    text[..place.span().start].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_kind_of_dependency() {
        let text = "\
[package]
name = \"plimsoll-tape\"
[lints]
workspace = true
[dependencies]
burn.workspace = true
serde = { workspace = true, features = [\"rc\"] }
[dependencies.toml]
version = \"1\"
[dev-dependencies]
insta = \"1\"
[target.'cfg(unix)'.dependencies]
libc.workspace = true
";
        let house = House::of([("crates/tape/Cargo.toml".to_owned(), text.to_owned())]).unwrap();
        let manifest = &house.manifests[0];
        assert_eq!(manifest.package, "plimsoll-tape");
        assert!(manifest.inherits_lints);
        let mut found: Vec<_> = manifest
            .dependencies
            .iter()
            .map(|Dependency { name, line, dev, from_workspace }| (*line, name.as_str(), *dev, *from_workspace))
            .collect();
        found.sort();
        assert_eq!(
            found,
            [
                (6, "burn", false, true),
                (7, "serde", false, true),
                (8, "toml", false, false),
                (11, "insta", true, false),
                (13, "libc", false, true),
            ]
        );
    }

    #[test]
    fn knows_what_only_checks_or_shows() {
        for (path, expected) in [
            ("crates/core/src/units.rs", false),
            ("crates/core/src/units/tests.rs", true),
            ("crates/core/tests/it/main.rs", true),
            ("crates/core/examples/units.rs", true),
            ("crates/core/src/tests_of_hypotheses.rs", false),
        ] {
            let file = TextFile { path: path.to_owned(), text: String::new() };
            assert_eq!(file.only_checks_or_shows(), expected, "{path}");
        }
    }
}
