//! Checks that only tests and examples call `unwrap`.
//!
//! Clippy's `unwrap_used` knows types and is stricter; this check takes milliseconds and needs no build.

use std::collections::BTreeSet;

use super::Finding;
use super::house::{House, TextFile};

/// Text of a call of unwrap, in two pieces so that the rule does not find its own source.
const UNWRAP: &str = concat!(".unwrap", "()");
const TESTS_ONLY: &str = "#[cfg(test)]";

/// Finds unwraps in code that is neither a test nor an example.
pub(super) fn outside_tests(house: &House) -> Vec<Finding> {
    let for_tests: BTreeSet<String> = house.rust().flat_map(modules_for_tests).collect();
    let is_code = |file: &&TextFile| !file.only_checks_or_shows() && !for_tests.contains(&file.path);
    let mut findings = Vec::new();
    for file in house.rust().filter(is_code) {
        for line in lines_that_unwrap(&file.text) {
            let message = "`unwrap` is for tests: return an error, or `expect(\"why this holds\")`";
            findings.push(Finding::breaks(&file.path, line, message));
        }
    }
    findings
}

/// Lists the files that `file` declares with `#[cfg(test)] mod name;`.
fn modules_for_tests(file: &TextFile) -> Vec<String> {
    let stem = file.path.trim_end_matches(".rs");
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let folder = if matches!(name, "lib" | "main" | "mod") { folder } else { stem };
    let mut modules = Vec::new();
    let mut before = "";
    for line in file.text.lines().map(str::trim) {
        let declared = line.split_once("mod ").and_then(|(_, name)| name.strip_suffix(';'));
        if let (TESTS_ONLY, Some(name)) = (before, declared) {
            modules.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]);
        }
        before = line;
    }
    modules
}

fn lines_that_unwrap(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut line_idx) = (Vec::new(), 0);
    while line_idx < lines.len() {
        let line = lines[line_idx];
        if line.trim() == TESTS_ONLY {
            line_idx += test_item_len(&lines[line_idx..]);
            continue;
        }
        if line.split("//").next().is_some_and(|code| code.contains(UNWRAP)) {
            found.push(line_idx + 1);
        }
        line_idx += 1;
    }
    found
}

/// Counts the lines of the item that begins with its `#[cfg(test)]`, as rustfmt formats it.
fn test_item_len(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    for (idx, line) in lines.iter().enumerate().skip(1) {
        let inner = line.trim();
        // Tests close a file. Looking for their last brace would stumble over one in a raw string.
        if inner.starts_with("mod ") && inner.ends_with('{') {
            return lines.len();
        }
        let outermost = line.len() - line.trim_start().len() == indent && !inner.is_empty();
        if outermost && (inner.ends_with('}') || inner.ends_with(';')) {
            return idx + 1;
        }
    }
    lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::check as check_rule;

    fn check(text: &str, expected: &[usize]) {
        assert_eq!(lines_that_unwrap(text), expected, "{text}");
    }

    #[test]
    fn finds_unwraps_in_code() {
        check("fn f() {\n    x.unwrap();\n}\n", &[2]);
        check("fn f() {\n    x.unwrap_or(1);\n    x.expect(\"why\");\n}\n", &[]);
        check("/// `x.unwrap()`\n// x.unwrap()\nlet y = 1; // not x.unwrap()\n", &[]);
    }

    #[test]
    fn lets_tests_unwrap() {
        check("#[cfg(test)]\nmod tests {\n    const T: &str = \"\n}\n\";\n    x.unwrap();\n}\n", &[]);
        check("#[cfg(test)]\nmod tests;\n\nfn f() {\n    x.unwrap();\n}\n", &[5]);
        check(
            "impl A {\n    #[cfg(test)]\n    fn f() {\n        x.unwrap();\n    }\n    fn g() {\n        x.unwrap();\n    }\n}\n",
            &[7],
        );
        check("#[cfg(test)]\nuse a::b;\nlet c = x.unwrap();\n", &[3]);
    }

    #[test]
    fn lets_modules_for_tests_unwrap() {
        let lib = ("crates/a/src/lib.rs", "//! A.\n#[cfg(test)]\npub(crate) mod testing;\nmod open;\n");
        let open = ("crates/a/src/open.rs", "//! B.\n#[cfg(test)]\nmod fixture;\n");
        let unwraps = |path| (path, "x.unwrap();\n");
        let found =
            "crates/a/src/fixture.rs:1: `unwrap` is for tests: return an error, or `expect(\"why this holds\")`";
        check_rule(outside_tests, &[lib, open, unwraps("crates/a/src/testing.rs")], &[]);
        check_rule(outside_tests, &[lib, open, unwraps("crates/a/src/testing/mod.rs")], &[]);
        check_rule(outside_tests, &[lib, open, unwraps("crates/a/src/open/fixture.rs")], &[]);
        check_rule(outside_tests, &[lib, open, unwraps("crates/a/src/fixture.rs")], &[found]);
    }
}
