//! Checks of the dependencies and the lints in the manifests of the crates.

use super::Finding;
use super::house::{House, Manifest};

/// Dependencies that only the listed crates may have, each with its crates and the reason. A name that ends in `-`
/// stands for all names that begin with it.
const HOMES: &[(&str, &[&str], &str)] = &[
    ("burn-", &["plimsoll-tape"], "only tape names Burn's insides"),
    ("cubecl-", &["plimsoll-tape"], "only tape names Burn's insides"),
    ("cubecl", &["plimsoll-tape"], "only tape names Burn's insides"),
    ("clap", &["plimsoll", "plimsoll-config"], "only the program reads arguments"),
    ("miette", &["plimsoll", "plimsoll-recipes", "plimsoll-config"], "people meet errors at the program's edge"),
    ("tracing-subscriber", &["plimsoll"], "only the program starts logging"),
    ("anyhow", &["xtask"], "libraries have errors with names and fields"),
];

/// Checks that each dependency in `HOMES` is used only in the crates that are listed for it.
pub(super) fn homes(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Manifest { path, package, dependencies, .. } in &house.manifests {
        for dependency in dependencies {
            let name = dependency.name.as_str();
            let matches = |wanted: &str| name == wanted || (wanted.ends_with('-') && name.starts_with(wanted));
            let strays = |homes: &[&str]| !homes.contains(&package.as_str());
            if let Some((_, homes, why)) = HOMES.iter().find(|(wanted, homes, _)| matches(wanted) && strays(homes)) {
                let message = format!("`{name}` belongs to `{}` alone: {why}", homes.join("` and `"));
                findings.push(Finding::breaks(path, dependency.line, message));
            }
        }
    }
    findings
}

/// Checks that versions and features of dependencies are named only in the workspace's manifest.
pub(super) fn from_the_workspace(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in &house.manifests {
        for dependency in manifest.dependencies.iter().filter(|dependency| !dependency.from_workspace) {
            let name = &dependency.name;
            let message =
                format!("name `{name}` in the workspace's Cargo.toml and write `{name}.workspace = true` here");
            findings.push(Finding::breaks(&manifest.path, dependency.line, message));
        }
    }
    findings
}

/// Checks that every manifest inherits the lints; a crate without this line would escape every lint of the workspace.
pub(super) fn lints(house: &House) -> Vec<Finding> {
    let escaped = house.manifests.iter().filter(|manifest| !manifest.inherits_lints);
    escaped.map(|manifest| Finding::breaks(&manifest.path, 1, "write `workspace = true` under `[lints]`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    fn manifest(package: &str, dependency: &str) -> String {
        format!("[package]\nname = \"{package}\"\n[dependencies]\n{dependency}\n")
    }

    #[test]
    fn some_dependencies_have_one_home() {
        let home = |package: &str, dependency: &str, expected: &[&str]| {
            check(
                homes,
                &[("crates/x/Cargo.toml", &manifest(package, &format!("{dependency}.workspace = true")))],
                expected,
            );
        };
        home("plimsoll-tape", "burn-backend", &[]);
        home("plimsoll-train", "burn", &[]);
        home("plimsoll", "clap", &[]);
        home("plimsoll-config", "clap", &[]);
        home("xtask", "anyhow", &[]);
        home(
            "plimsoll-train",
            "burn-ir",
            &["crates/x/Cargo.toml:4: `burn-ir` belongs to `plimsoll-tape` alone: only tape names Burn's insides"],
        );
        home(
            "plimsoll-data",
            "clap",
            &[
                "crates/x/Cargo.toml:4: `clap` belongs to `plimsoll` and `plimsoll-config` alone: only the program reads arguments",
            ],
        );
        home(
            "plimsoll",
            "anyhow",
            &["crates/x/Cargo.toml:4: `anyhow` belongs to `xtask` alone: libraries have errors with names and fields"],
        );
    }

    #[test]
    fn versions_are_named_in_the_workspace() {
        let said =
            "crates/x/Cargo.toml:4: name `serde` in the workspace's Cargo.toml and write `serde.workspace = true` here";
        for (dependency, expected) in [
            ("serde.workspace = true", &[][..]),
            ("serde = { workspace = true, features = [\"rc\"] }", &[]),
            ("serde = \"1\"", &[said]),
            ("serde = { path = \"../serde\" }", &[said]),
        ] {
            check(from_the_workspace, &[("crates/x/Cargo.toml", &manifest("plimsoll-x", dependency))], expected);
        }
    }

    #[test]
    fn no_crate_escapes_the_lints() {
        let path = "crates/x/Cargo.toml";
        check(lints, &[(path, "[package]\nname = \"x\"\n[lints]\nworkspace = true\n")], &[]);
        check(
            lints,
            &[(path, "[package]\nname = \"x\"\n")],
            &["crates/x/Cargo.toml:1: write `workspace = true` under `[lints]`"],
        );
    }
}
