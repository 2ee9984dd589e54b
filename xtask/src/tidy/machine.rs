//! Checks that no file names a path of a developer's machine.

use super::Finding;
use super::house::House;

/// Folders that exist only on the machines of the developers. `/tmp/` exists on every machine, so it is not listed.
const MACHINE: [&str; 2] = ["/work/", "/root/"];

/// Finds paths of the developers' machines in every text file except xtask's own files, which have to name them.
pub(super) fn paths(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.files.iter().filter(|file| !file.path.starts_with("xtask/")) {
        for (line_idx, line) in file.text.lines().enumerate() {
            if let Some(path) = MACHINE.iter().find(|path| begins_a_path(line, path)) {
                let message = format!("`{path}` is a folder of one machine: say it from the root of the repository");
                findings.push(Finding::breaks(&file.path, line_idx + 1, message));
            }
        }
    }
    findings
}

/// Returns whether `path` occurs in `line` as the beginning of a path, and not inside a longer path or an address.
fn begins_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|char| char.is_alphanumeric() || "._-~/}>$*".contains(char))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    #[test]
    fn finds_the_paths_of_one_machine() {
        let work = "docs/a.md:2: `/work/` is a folder of one machine: say it from the root of the repository";
        for (line, expected) in [
            ("see /work/main/docs", &[work][..]),
            ("`/work/main`", &[work]),
            ("see ~/work/main and https://example.org/work/1 and $HOME/work/", &[]),
            ("/tmp/scratch is everyone's", &[]),
            ("the framework/worker", &[]),
        ] {
            check(paths, &[("docs/a.md", &format!("# A\n{line}\n"))], expected);
        }
        check(paths, &[("xtask/src/a.rs", "//! /root/ is ours to name.")], &[]);
    }
}
