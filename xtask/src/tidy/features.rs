//! Checks that training, testing all and testing one crate share one build of the dependencies.
//!
//! Cargo resolves features for the packages it is asked to build. A test's dependency can turn on a feature deep below
//! Burn (proptest did: `default` of `regex-syntax`, which `burn-core` reaches through `regex`), and then everything
//! above it compiles a second time, which takes minutes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};

use super::Finding;
use super::house::{House, Manifest};
use crate::cargo::ONE_BUILD;
use crate::cargo::cargo;

/// Compares the packages that the program and each crate build with the packages that `cargo xtask test` builds.
///
/// People train and test in turn, so the program alone must build what its tests build, Burn and all below it. A crate is
/// tested beside `one-build`, which has to name each dependency of the workspace for that.
pub(super) fn compiled_twice(house: &House) -> Result<Vec<Finding>> {
    let workspace = tree(&["--workspace", "--edges", "normal,build,dev"])?;
    let (all, all_below_burn) = (built(&workspace, |_| true), built(&workspace, of_burn));
    let mut findings = Vec::new();
    for Manifest { path, package, .. } in &house.manifests {
        let message = if package == "plimsoll" {
            let alone = tree(&["--package", package, "--edges", "normal,build"])?;
            let differences = differences(&built(&alone, of_burn), &all_below_burn).join("; ");
            (!differences.is_empty()).then(|| {
                format!(
                    "`cargo xtask test` after `cargo xtask train` compiles Burn again: {differences}; name it here with that feature"
                )
            })
        } else {
            let alone = tree(&["--package", package, "--package", ONE_BUILD, "--edges", "normal,build,dev"])?;
            // A crate of ours that others depend on may have more features there; it alone is compiled again.
            let foreign = |name: &str| !name.starts_with("plimsoll");
            let differences = differences(&built(&alone, foreign), &all).join("; ");
            (!differences.is_empty()).then(|| {
                format!(
                    "`cargo xtask test -p {package}` compiles dependencies again: {differences}; name them in testing/{ONE_BUILD}/Cargo.toml"
                )
            })
        };
        findings.extend(message.map(|message| Finding::breaks(path, 1, message)));
    }
    Ok(findings)
}

/// Runs `cargo tree`, and returns one line for each package: its depth, its name and version, a `|`, its features.
fn tree(args: &[&str]) -> Result<String> {
    let output = cargo()
        .args(["tree", "--locked", "--prefix", "depth", "--format", "{p}|{f}"])
        .args(args)
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cannot compare features: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("cargo tree printed something that is not text")
}

/// Packages by name and version, each with the sets of features that it is built with; several sets mean several
/// builds.
type Built = BTreeMap<String, BTreeSet<String>>;

/// Whether the package of this name is a part of Burn or CubeCL.
fn of_burn(name: &str) -> bool {
    name.starts_with("burn") || name.starts_with("cubecl")
}

/// Returns the packages in `tree`, the output of `cargo tree`, whose name `is_root` takes, and all packages that they depend
/// on, directly or through others.
fn built(tree: &str, is_root: impl Fn(&str) -> bool) -> Built {
    let (mut edges, mut path) = (BTreeMap::<&str, BTreeSet<&str>>::new(), Vec::<&str>::new());
    for line in tree.lines() {
        // A subtree that was shown before is cut off and marked.
        let line = line.trim_end_matches(" (*)");
        let depth_len = line.len() - line.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        let Ok(depth) = line[..depth_len].parse::<usize>() else { continue };
        let node = &line[depth_len..];
        path.truncate(depth);
        if let Some(parent) = path.last() {
            edges.entry(parent).or_default().insert(node);
        }
        edges.entry(node).or_default();
        path.push(node);
    }
    let mut open: Vec<&str> = edges.keys().copied().filter(|node| is_root(node)).collect();
    let mut seen = BTreeSet::new();
    let mut built = Built::new();
    while let Some(node) = open.pop() {
        if seen.insert(node) {
            open.extend(&edges[node]);
            let (package, features) = node.split_once('|').unwrap_or((node, ""));
            built.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
    }
    built
}

/// Lists the packages that `alone` builds with a set of features that `workspace` never uses, and the features that are
/// missing in `alone`.
fn differences(alone: &Built, workspace: &Built) -> Vec<String> {
    let mut differences = Vec::new();
    for (package, sets) in alone {
        let Some(others) = workspace.get(package) else { continue };
        for features in sets.difference(others) {
            let words = |set: &str| set.split(',').map(str::to_owned).collect::<BTreeSet<_>>();
            let lacks: BTreeSet<String> = others
                .iter()
                .flat_map(|other| &words(other) - &words(features))
                .filter(|word| !word.is_empty())
                .collect();
            let lacks: Vec<String> = lacks.into_iter().collect();
            differences.push(format!("{package} lacks `{}`", lacks.join(",")));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(alone: &str, workspace: &str, expected: &[&str]) {
        assert_eq!(differences(&built(alone, of_burn), &built(workspace, of_burn)), expected);
    }

    #[test]
    fn finds_a_feature_deep_below_burn() {
        let alone = "0plimsoll v0.1.0|\n1burn v0.22.1|std\n2regex v1|std\n3regex-syntax v0.8|std\n";
        let tests = "0plimsoll v0.1.0|\n1burn v0.22.1|std\n2regex v1|std\n3regex-syntax v0.8|default,std\n";
        check(alone, tests, &["regex-syntax v0.8 lacks `default`"]);
        check(alone, alone, &[]);
    }

    #[test]
    fn looks_at_burn_alone() {
        let alone = "0plimsoll v0.1.0|\n1clap v4|std\n1burn v0.22.1|std\n";
        let tests = "0plimsoll v0.1.0|\n1clap v4|default,std\n1burn v0.22.1|std\n";
        check(alone, tests, &[]);
    }

    #[test]
    fn follows_a_subtree_that_was_shown_before() {
        let alone = "0plimsoll v0.1.0|\n1regex v1|\n2memchr v2|std\n1burn v0.22.1|\n2regex v1| (*)\n";
        let tests = "0plimsoll v0.1.0|\n1regex v1|\n2memchr v2|alloc,std\n1burn v0.22.1|\n2regex v1| (*)\n";
        check(alone, tests, &["memchr v2 lacks `alloc`"]);
    }

    #[test]
    fn a_crate_may_be_built_in_several_ways() {
        let alone = "0burn v0.22.1|\n1syn v2|full\n";
        let tests = "0burn v0.22.1|\n1syn v2|full\n1syn v2|default\n";
        check(alone, tests, &[]);
    }
}
