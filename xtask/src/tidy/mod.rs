//! Rules of the workspace that no compiler checks: each is a function from the files of the workspace to findings.

mod circles;
mod enclosing;
mod faces;
mod features;
mod files;
mod house;
mod imports;
mod layers;
mod lexer;
mod machine;
mod manifests;
mod map;
mod module_tree;
mod package;
pub(crate) mod sample_docs;
mod unwraps;
mod words;

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

use crate::cargo::root;
use house::House;

/// A broken rule or a warning, with its place in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
    weight: Weight,
}

/// Weight of a finding: an error fails the check, a warning does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Breaks,
    Warns,
}

impl Finding {
    fn new(weight: Weight, path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), weight }
    }

    fn breaks(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self::new(Weight::Breaks, path, line, message)
    }

    fn warns(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self::new(Weight::Warns, path, line, message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, message, weight } = self;
        let question = if *weight == Weight::Warns { "warning: " } else { "" };
        write!(f, "{path}:{line}: {question}{message}")
    }
}

const RULES: &[fn(&House) -> Vec<Finding>] = &[
    layers::edges,
    manifests::homes,
    manifests::from_the_workspace,
    manifests::lints,
    files::first_lines,
    files::lengths,
    machine::paths,
    map::every_crate_is_named,
    map::walks_exist,
    unwraps::outside_tests,
    circles::among_files,
    words::of_the_house,
    package::descriptions,
    package::workspace,
    package::included_files,
    faces::lengths,
];

/// Maximum number of findings that are shown of a rule that only warns; a path as argument shows all.
const WARNINGS_SHOWN: usize = 15;

/// Runs `cargo xtask tidy [PATH...]`: checks the whole workspace, and shows the findings about `paths`; `.` stands for
/// everything.
pub(crate) fn run(paths: &[String]) -> Result<ExitCode> {
    let house = House::read(&root())?;
    // A misspelt path would look like a clean one.
    let is_known = |path: &&String| house.files.iter().any(|file| lies_in(&file.path, path));
    if let Some(path) = paths.iter().find(|path| !is_known(path)) {
        return Err(crate::Misuse(format!("`{path}` is no file or folder of the workspace, from its root")).into());
    }
    let mut by_rule: Vec<Vec<Finding>> = RULES.iter().map(|rule| rule(&house)).collect();
    by_rule.push(features::compiled_twice(&house)?);
    let (mut n_breaks, mut n_warnings) = (0, 0);
    for mut findings in by_rule {
        findings.retain(|finding| paths.is_empty() || paths.iter().any(|path| lies_in(&finding.path, path)));
        let n_broken = findings.iter().filter(|finding| finding.weight == Weight::Breaks).count();
        n_breaks += n_broken;
        n_warnings += findings.len() - n_broken;
        for line in shown(findings, paths.is_empty()) {
            println!("{line}");
        }
    }
    println!("tidy: {} files, {n_breaks} broken rules, {n_warnings} warnings", house.files.len());
    Ok(if n_breaks == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns whether `path` is `place` or lies in it. Every path lies in `.`.
fn lies_in(path: &str, place: &str) -> bool {
    let place = place.trim_start_matches("./").trim_end_matches('/');
    let inside = path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    place == "." || inside
}

/// Formats the findings of one rule: its errors, then its warnings; when `short`, only the first warnings.
fn shown(mut findings: Vec<Finding>, short: bool) -> Vec<String> {
    findings.sort_by(|a, b| (a.weight, a).cmp(&(b.weight, b)));
    let n_breaks = findings.partition_point(|finding| finding.weight == Weight::Breaks);
    let n_shown = if short { n_breaks + WARNINGS_SHOWN } else { findings.len() };
    let mut lines: Vec<String> = findings.iter().take(n_shown).map(ToString::to_string).collect();
    if findings.len() > n_shown {
        let n_more = findings.len() - n_shown;
        lines.push(format!(
            "... and {n_more} warnings like these: `cargo xtask tidy PATH` shows them, `.` is every path"
        ));
    }
    lines
}

/// Runs one rule over a workspace made of `(path, text)` and compares the output with the expected lines.
#[cfg(test)]
fn check(rule: fn(&House) -> Vec<Finding>, files: &[(&str, &str)], expected: &[&str]) {
    let house = House::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
        .expect("the manifests of a test parse");
    let found: Vec<String> = rule(&house).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_all_that_breaks_and_some_warnings() {
        let mut findings: Vec<Finding> = (1..=20).map(|line| Finding::warns("a.rs", line, "long")).collect();
        findings.extend((1..=20).map(|line| Finding::breaks("b.rs", line, "wrong")));
        let lines = shown(findings.clone(), true);
        assert_eq!(lines.len(), 20 + WARNINGS_SHOWN + 1);
        assert_eq!((lines[0].as_str(), lines[20].as_str()), ("b.rs:1: wrong", "a.rs:1: warning: long"));
        assert!(lines[35].starts_with("... and 5 warnings like these"), "{}", lines[35]);
        assert_eq!(shown(findings, false).len(), 40);
        assert_eq!(shown(vec![Finding::warns("a.rs", 1, "long")], true), ["a.rs:1: warning: long"]);
    }

    #[test]
    fn a_path_chooses_files() {
        for (path, place, expected) in [
            ("crates/core/src/a.rs", "crates/core", true),
            ("crates/core/src/a.rs", "./crates/core/", true),
            ("crates/core/src/a.rs", "crates/core/src/a.rs", true),
            ("crates/core/src/a.rs", ".", true),
            ("crates/core/src/a.rs", "crates/co", false),
            ("crates/core/src/a.rs", "docs", false),
        ] {
            assert_eq!(lies_in(path, place), expected, "{path} in {place}");
        }
    }
}
