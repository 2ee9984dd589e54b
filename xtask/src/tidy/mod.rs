//! The rules of the house that no compiler knows, each a plain function from the house to its findings.

mod circles;
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
mod unwraps;

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

use crate::cargo::root;
use house::House;

/// Something a rule has to say about one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
    weight: Weight,
}

/// Whether a finding stops the house or only asks a question.
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
    unwraps::outside_tests,
    circles::among_files,
];

/// Checks the whole house.
pub(crate) fn run() -> Result<ExitCode> {
    let house = House::read(&root())?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&house)).collect();
    findings.extend(features::compiled_twice(&house)?);
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let n_breaks = findings.iter().filter(|finding| finding.weight == Weight::Breaks).count();
    let n_warnings = findings.len() - n_breaks;
    println!("tidy: {} files, {n_breaks} broken rules, {n_warnings} warnings", house.files.len());
    Ok(if n_breaks == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one rule over a house made of `(path, text)` and compares what it prints.
#[cfg(test)]
fn check(rule: fn(&House) -> Vec<Finding>, files: &[(&str, &str)], expected: &[&str]) {
    let house = House::of(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())))
        .expect("the manifests of a test parse");
    let found: Vec<String> = rule(&house).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}
