//! Findings as text and as JSON.

use super::findings::{Finding, Need, Status, worst};

/// Formats findings as a list, with a line for the build and a line for a run at its end.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut page = String::new();
    for Finding { name, status, message, fix, .. } in findings {
        page.push_str(&format!("{} {name:<13} {message}\n", status.name()));
        if !fix.is_empty() {
            page.push_str(&format!("{:19}fix: {fix}\n", ""));
        }
    }
    for need in [Need::Build, Need::Run] {
        let verdict = match worst(findings, need) {
            Status::Pass => "ready",
            Status::Warn => "ready, with warnings",
            Status::Fail => "not ready",
        };
        page.push_str(&format!("{}: {verdict}\n", need.name()));
    }
    page
}

/// Formats findings as a JSON list.
pub(super) fn json(findings: &[Finding]) -> String {
    let one = |finding: &Finding| {
        let status = finding.status.name().to_lowercase();
        let Finding { name, need, message, fix, .. } = finding;
        object(&[("name", name), ("need", need.name()), ("status", &status), ("message", message), ("fix", fix)])
    };
    list(findings.iter().map(one))
}

/// Formats a JSON object of texts.
pub(super) fn object(entries: &[(&str, &str)]) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}: {}", quoted(key), quoted(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Formats a JSON list of values that are JSON already, one in a line.
pub(super) fn list(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.map(|value| format!("\n  {value}")).collect();
    if values.is_empty() { "[]".into() } else { format!("[{}\n]", values.join(",")) }
}

/// Formats a text as JSON. A list of findings is no reason to build a JSON library.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            char if char.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Vec<Finding> {
        let finding = |name, need, status, fix: &str| Finding {
            name,
            need,
            status,
            message: format!("about \"{name}\""),
            fix: fix.into(),
        };
        vec![finding("llvm", Need::Build, Status::Pass, ""), finding("driver", Need::Run, Status::Fail, "install it")]
    }

    #[test]
    fn the_list_ends_with_two_verdicts() {
        assert_eq!(
            text(&findings()),
            "\
PASS llvm          about \"llvm\"
FAIL driver        about \"driver\"
                   fix: install it
build: ready
run: not ready
"
        );
    }

    #[test]
    fn json_holds_the_same() {
        let expected = r#"[
  {"name": "llvm", "need": "build", "status": "pass", "message": "about \"llvm\"", "fix": ""},
  {"name": "driver", "need": "run", "status": "fail", "message": "about \"driver\"", "fix": "install it"}
]"#;
        assert_eq!(json(&findings()), expected);
        assert_eq!(json(&[]), "[]");
        assert_eq!(quoted("a\u{1}\t\n\\\"ä"), r#""a\u0001\u0009\n\\\"ä""#);
    }
}
