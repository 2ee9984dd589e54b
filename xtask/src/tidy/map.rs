//! Checks that docs/ARCHITECTURE.md names every crate, and that the functions in its tables exist.

use super::Finding;
use super::house::House;

const MAP: &str = "docs/ARCHITECTURE.md";

/// Checks that docs/ARCHITECTURE.md names every crate of the workspace, by its package or its folder.
pub(super) fn every_crate_is_named(house: &House) -> Vec<Finding> {
    let Some(map) = house.files.iter().find(|file| file.path == MAP) else {
        return vec![Finding::breaks(MAP, 1, "the map is missing: a newcomer starts there")];
    };
    let mut findings = Vec::new();
    for manifest in &house.manifests {
        let folder = manifest.path.trim_end_matches("/Cargo.toml");
        if !names(&map.text, folder) && !names(&map.text, &manifest.package) {
            findings.push(Finding::breaks(MAP, 1, format!("`{folder}` is not on the map: it deserves a paragraph")));
        }
    }
    findings
}

/// Checks that each function in a table of docs/ARCHITECTURE.md, with rows of the form "| 1 | `name` |
/// crates/a/src/b.rs | what |", exists in its file.
pub(super) fn walks_exist(house: &House) -> Vec<Finding> {
    let Some(map) = house.files.iter().find(|file| file.path == MAP) else { return Vec::new() };
    let mut findings = Vec::new();
    for (line_idx, line) in map.text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let &["", number, name, path, _, ""] = &cells[..] else { continue };
        if number.parse::<u32>().is_err() || !path.ends_with(".rs") {
            continue;
        }
        let name = name.trim_matches('`');
        let text = house.files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
        let stands = [format!("fn {name}("), format!("fn {name}<")].iter().any(|start| text.contains(start));
        if !stands {
            let message = format!("`{name}` does not stand in {path}: correct the walk");
            findings.push(Finding::breaks(MAP, line_idx + 1, message));
        }
    }
    findings
}

/// Returns whether `word` occurs in `text` by itself, so that `plimsoll-core` does not name `plimsoll`.
fn names(text: &str, word: &str) -> bool {
    let ends_it = |char: Option<char>| !char.is_some_and(|char| char.is_alphanumeric() || "-_/".contains(char));
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        ends_it(before.chars().next_back()) && ends_it(after.strip_prefix('/').unwrap_or(after).chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    #[test]
    fn every_crate_is_on_the_map() {
        let core = ("crates/core/Cargo.toml", "[package]\nname = \"plimsoll-core\"\n");
        let program = ("crates/plimsoll/Cargo.toml", "[package]\nname = \"plimsoll\"\n");
        let missing = "docs/ARCHITECTURE.md:1: `crates/plimsoll` is not on the map: it deserves a paragraph";
        let with = |map: &str, expected: &[&str]| check(every_crate_is_named, &[core, program, (MAP, map)], expected);
        with("`plimsoll-core` holds words; `crates/plimsoll` is the program.", &[]);
        with("crates/core/ holds words.\n`plimsoll` is the program.", &[]);
        with("`plimsoll-core` holds words.", &[missing]);
        with("see crates/core/src/lib.rs and crates/core", &[missing]);
        let no_map = "docs/ARCHITECTURE.md:1: the map is missing: a newcomer starts there";
        check(every_crate_is_named, &[core], &[no_map]);
    }

    #[test]
    fn a_walk_names_functions_that_exist() {
        let code = ("crates/a/src/b.rs", "//! B.\nfn run() {}\nfn step<T>() {}\n");
        let good = "| 1 | `run` | crates/a/src/b.rs | runs |\n| 2 | `step` | crates/a/src/b.rs | steps |\n| word | meaning |\n";
        check(walks_exist, &[code, (MAP, good)], &[]);
        let bad = "| 1 | `sleep` | crates/a/src/b.rs | |\n| 2 | `run` | crates/a/src/c.rs | |\n";
        let said = |line: usize, name: &str, path: &str| {
            format!("docs/ARCHITECTURE.md:{line}: `{name}` does not stand in {path}: correct the walk")
        };
        let expected = [said(1, "sleep", "crates/a/src/b.rs"), said(2, "run", "crates/a/src/c.rs")];
        check(walks_exist, &[code, (MAP, bad)], &expected.each_ref().map(String::as_str));
    }
}
