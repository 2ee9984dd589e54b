//! Checks that every Rust file states its purpose, and is not too long.

use super::Finding;
use super::house::House;

/// Number of lines above which a warning asks to divide a file.
const LINES_ASKED: usize = 400;
/// Number of lines above which a file fails the check.
const LINES_MAX: usize = 600;

/// Checks that the first line of a file states its purpose.
pub(super) fn first_lines(house: &House) -> Vec<Finding> {
    let silent = house.rust().filter(|file| !file.text.starts_with("//!"));
    silent
        .map(|file| Finding::breaks(&file.path, 1, "open with one `//!` line that says what the file is for"))
        .collect()
}

/// Finds files that are too long for a single idea.
pub(super) fn lengths(house: &House) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in house.rust() {
        let n_lines = file.text.lines().count();
        if n_lines > LINES_MAX {
            let message = format!("{n_lines} lines, more than {LINES_MAX}: cut it along its ideas");
            findings.push(Finding::breaks(&file.path, n_lines, message));
        } else if n_lines > LINES_ASKED {
            findings.push(Finding::warns(&file.path, n_lines, format!("{n_lines} lines: is it still one idea?")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check;

    #[test]
    fn a_file_opens_with_its_purpose() {
        let said = "a.rs:1: open with one `//!` line that says what the file is for";
        for (text, expected) in [
            ("//! Units.\nfn f() {}\n", &[][..]),
            ("fn f() {}\n", &[said]),
            ("\n//! Late.\n", &[said]),
            ("// Units.\n", &[said]),
            ("", &[said]),
        ] {
            check(first_lines, &[("a.rs", text)], expected);
        }
        check(first_lines, &[("notes.md", "# Notes\n")], &[]);
    }

    #[test]
    fn a_file_holds_one_idea() {
        let lines = |n_lines: usize| "//! x\n".repeat(n_lines);
        check(lengths, &[("a.rs", &lines(400))], &[]);
        check(lengths, &[("a.rs", &lines(401))], &["a.rs:401: warning: 401 lines: is it still one idea?"]);
        check(lengths, &[("a.rs", &lines(600))], &["a.rs:600: warning: 600 lines: is it still one idea?"]);
        check(lengths, &[("a.rs", &lines(601))], &["a.rs:601: 601 lines, more than 600: cut it along its ideas"]);
        check(lengths, &[("a.md", &lines(601))], &[]);
    }
}
