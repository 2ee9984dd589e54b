//! Checks that `cargo package` can make each crate a package that builds by itself.

use toml::de::DeTable;

use super::house::{House, TextFile, line_of, table};
use super::imports::{Body, read};
use super::module_tree::joined;
use super::{Finding, Weight};

const WEIGHT: Weight = Weight::Breaks;

const ROOT: &str = "Cargo.toml";
/// Fields of a manifest that a user needs to find a crate and to use it.
const WANTED: [&str; 4] = ["description", "keywords", "categories", "license"];

/// Checks that every crate describes itself, and can be published.
pub(super) fn descriptions(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.files.iter().filter(|file| crate_folder(&file.path).is_some_and(|at| is_manifest(file, at))) {
        let Ok(root) = DeTable::parse(&file.text) else { continue };
        let Some(package) = table(root.get_ref(), "package") else { continue };
        let mut missing: Vec<&str> = WANTED.into_iter().filter(|key| !package.contains_key(*key)).collect();
        let readme = match package.get("readme").map(|readme| readme.get_ref().as_str()) {
            None => Some("README.md"),
            Some(name) => name,
        };
        let folder = file.path.trim_end_matches(ROOT);
        if !readme.is_some_and(|name| house.files.iter().any(|file| file.path == format!("{folder}{name}"))) {
            missing.push("readme (a file in the folder of the crate)");
        }
        if !missing.is_empty() {
            findings.push(Finding::new(WEIGHT, &file.path, 1, format!("a package needs {}", missing.join(", "))));
        }
        findings.extend(unpublished(file, package));
    }
    findings
}

/// Checks that path dependencies name a version, and that the workspace permits publishing its crates.
pub(super) fn workspace(house: &House) -> Vec<Finding> {
    let Some(file) = house.files.iter().find(|file| file.path == ROOT) else { return Vec::new() };
    let Ok(root) = DeTable::parse(&file.text) else { return Vec::new() };
    let Some(workspace) = table(root.get_ref(), "workspace") else { return Vec::new() };
    let mut findings = Vec::new();
    for (name, value) in table(workspace, "dependencies").into_iter().flatten() {
        let asked = value.get_ref().as_table();
        if asked.is_some_and(|asked| asked.contains_key("path") && !asked.contains_key("version")) {
            let message =
                format!("`{}` needs a version beside its path: a package keeps only the version", name.get_ref());
            findings.push(Finding::new(WEIGHT, ROOT, line_of(&file.text, name), message));
        }
    }
    findings.extend(table(workspace, "package").and_then(|package| unpublished(file, package)));
    findings
}

/// Finds `publish = false` in `package`, a table of the manifest `file`.
fn unpublished(file: &TextFile, package: &DeTable<'_>) -> Option<Finding> {
    let publish = package.get("publish")?;
    let message = "with `publish = false`, `cargo package` does not find this crate for the crates that depend on it";
    let stands = publish.get_ref().as_bool() == Some(false);
    stands.then(|| Finding::new(WEIGHT, &file.path, line_of(&file.text, publish), message))
}

/// Checks that files that code includes lie in the folder of its crate: a package holds no other files.
pub(super) fn included_files(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.rust().filter(|file| !file.only_checks_or_shows()) {
        let Some(folder) = crate_folder(&file.path) else { continue };
        for (path, line) in includes(&read(&file.text)) {
            let from = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let whole = joined(from, &path);
            if !format!("{whole}/").starts_with(&format!("{folder}/")) {
                let message = format!("`{whole}` lies outside of the crate, so a package would lack it");
                findings.push(Finding::new(WEIGHT, &file.path, line, message));
            }
        }
    }
    findings
}

/// Lists the includes of a file, with the includes of its inline modules.
fn includes(body: &Body) -> Vec<(String, usize)> {
    let inline = body.modules.iter().filter_map(|module| module.inline.as_ref());
    body.includes.iter().cloned().chain(inline.flat_map(includes)).collect()
}

/// Returns the folder `crates/x` of a path in it; `None` for a path outside of `crates/`.
fn crate_folder(path: &str) -> Option<&str> {
    let name_len = path.strip_prefix("crates/")?.find('/')?;
    Some(&path[.."crates/".len() + name_len])
}

fn is_manifest(file: &TextFile, folder: &str) -> bool {
    file.path.strip_prefix(folder) == Some("/Cargo.toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    const PATH: &str = "crates/x/Cargo.toml";
    const README: (&str, &str) = ("crates/x/README.md", "# X\n");
    const WHOLE: &str = "[package]\nname = \"x\"\ndescription = \"X.\"\nkeywords.workspace = true\ncategories = [\"science\"]\nlicense.workspace = true\n";

    #[test]
    fn a_crate_describes_itself() {
        check(descriptions, &[(PATH, WHOLE), README], &[]);
        let said = |missing: &str| format!("{PATH}:1: a package needs {missing}");
        let no_readme = said("readme (a file in the folder of the crate)");
        check(descriptions, &[(PATH, WHOLE)], &[&no_readme]);
        check(descriptions, &[(PATH, &format!("{WHOLE}readme = \"OTHER.md\"\n")), README], &[&no_readme]);
        let all = said("description, keywords, categories, license, readme (a file in the folder of the crate)");
        check(descriptions, &[(PATH, "[package]\nname = \"x\"\n")], &[&all]);
        check(descriptions, &[("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n")], &[]);
    }

    #[test]
    fn a_crate_can_be_published() {
        let why = "with `publish = false`, `cargo package` does not find this crate for the crates that depend on it";
        check(descriptions, &[(PATH, &format!("{WHOLE}publish = false\n")), README], &[&format!("{PATH}:7: {why}")]);
        check(workspace, &[(ROOT, "[workspace.package]\npublish = false\n")], &[&format!("Cargo.toml:2: {why}")]);
        check(workspace, &[(ROOT, "[workspace.package]\nversion = \"1.0.0\"\n")], &[]);
    }

    #[test]
    fn path_dependencies_name_a_version() {
        let said = "Cargo.toml:2: `x` needs a version beside its path: a package keeps only the version";
        for (dependency, expected) in [
            ("x = { path = \"crates/x\" }", &[said][..]),
            ("x = { path = \"crates/x\", version = \"0.1.0\" }", &[]),
            ("x = \"0.1.0\"", &[]),
        ] {
            check(workspace, &[(ROOT, &format!("[workspace.dependencies]\n{dependency}\n"))], expected);
        }
    }

    #[test]
    fn included_files_lie_in_the_crate() {
        let outside = "crates/x/src/a/b.rs:2: `configs/c.toml` lies outside of the crate, so a package would lack it";
        for (include, expected) in [
            ("include_str!(\"../../../../configs/c.toml\");", &[outside][..]),
            ("include_str!(concat!(\"../../../../configs/c.toml\"));", &[outside]),
            ("include_bytes!(\"../page.css\");", &[]),
            ("#[cfg(test)] const A: &str = include_str!(\"../../../../configs/c.toml\");", &[]),
            ("include!(concat!(env!(\"OUT_DIR\"), \"/a.rs\"));", &[]),
        ] {
            check(included_files, &[("crates/x/src/a/b.rs", &format!("//! B.\n{include}\n"))], expected);
        }
    }
}
