//! The results of a proof as an HTML file that needs nothing else.

use std::fmt::Write;

use plimsoll_core::{Seconds, counted};
use plimsoll_monitor::doctor::{CheckReport, CheckStatus, DoctorReport};

use crate::profile::KernelProfile;

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8886; --pass: #2a7d46; --warn: #a86400; --fail: #b3261e; --skip: #777; }
@media (prefers-color-scheme: dark) { :root { --pass: #6cc48a; --warn: #e0a94a; --fail: #f28b82; --skip: #999; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid var(--line); }
td.number { text-align: right; white-space: nowrap; }
td.finding { white-space: pre-line; overflow-wrap: anywhere; }
.pass { color: var(--pass); } .warn { color: var(--warn); } .fail { color: var(--fail); } .skip { color: var(--skip); }
pre { overflow-x: auto; border: 1px solid var(--line); padding: .6rem; }
.fix { font-style: italic; }
";

/// Formats `report`, which was made with the configuration `config`, with the `kernels` of a GPU.
pub(super) fn page(report: &DoctorReport, kernels: Option<&KernelProfile>, config: &str) -> String {
    let mut body = String::new();
    let count = |status| report.count(status);
    let verdict = match (count(CheckStatus::Fail), count(CheckStatus::Warn)) {
        (0, 0) => "Everything that was tried works".to_string(),
        (0, warnings) => format!("Everything works, with {}", counted(warnings, "warning")),
        (failed, _) => format!("{} failed", counted(failed, "check")),
    };
    let _ = writeln!(body, "<h1>{verdict}</h1>");
    if let Some(machine) = &report.machine {
        let _ = writeln!(body, "<p>{}</p>", escaped(&machine.to_string()).replace('\n', "<br>"));
    }
    body.push_str("<table><tr><th>Result</th><th>Check</th><th>Finding</th><th>Time</th></tr>\n");
    report.checks.iter().for_each(|check| row(&mut body, check));
    body.push_str("</table>\n");
    if let Some(kernels) = kernels {
        kernel_table(&mut body, kernels);
    }
    let _ = writeln!(body, "<details><summary>Configuration</summary><pre>{}</pre></details>", escaped(config));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Plimsoll: proof</title><style>{STYLE}</style></head><body>\n{body}</body></html>\n"
    )
}

fn row(body: &mut String, check: &CheckReport) {
    let status = check.outcome.status.to_string();
    let fix = check.outcome.fix.as_ref().map(|fix| format!("\n<span class=\"fix\">{}</span>", escaped(fix)));
    let _ = writeln!(
        body,
        "<tr><td class=\"{}\">{status}</td><td>{}<br><small>{}</small></td><td class=\"finding\">{}{}</td>\
         <td class=\"number\">{}</td></tr>",
        status.to_lowercase(),
        escaped(&check.title),
        escaped(&check.id),
        escaped(&check.outcome.finding),
        fix.unwrap_or_default(),
        Seconds(check.seconds)
    );
}

/// Adds the kernels of a GPU, the longest first.
fn kernel_table(body: &mut String, kernels: &KernelProfile) {
    body.push_str(
        "<h2>Kernels of a step</h2><table><tr><th>Kernel</th><th>Launches</th><th>Time</th><th>Share</th></tr>\n",
    );
    for row in &kernels.rows {
        let _ = writeln!(
            body,
            "<tr><td>{}</td><td class=\"number\">{:.1}</td><td class=\"number\">{}</td><td class=\"number\">{:.1} %</td></tr>",
            escaped(&row.name),
            row.count,
            Seconds(row.seconds),
            row.share * 100.0
        );
    }
    body.push_str("</table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_monitor::doctor::Outcome;

    use super::*;

    #[test]
    fn texts_are_escaped_and_the_verdict_follows_from_the_checks() {
        let check = |outcome| CheckReport::new("speed", "speed <b>", outcome, Duration::from_secs(2));
        let text = |outcome| page(&DoctorReport::new(0.0, None, vec![check(outcome)]), None, "a = \"<\"");
        let passed = text(Outcome::pass("1 & 2"));
        assert!(passed.contains("Everything that was tried works") && passed.contains("1 &amp; 2"), "{passed}");
        assert!(!passed.contains("<b>") && passed.contains("a = &quot;&lt;&quot;"), "{passed}");
        assert!(text(Outcome::fail("no")).contains("<h1>1 check failed</h1>"));
        let rows = serde_json::json!([{"name": "matmul", "count": 2.0, "seconds": 0.5, "share": 0.25, "by_host": 0.0}]);
        let kernels = serde_json::json!({"steps": 3, "seconds_per_step": 2.0, "cost": 0.1, "rows": rows});
        let kernels: KernelProfile = serde_json::from_value(kernels).unwrap();
        let with_kernels = page(&DoctorReport::new(0.0, None, Vec::new()), Some(&kernels), "");
        assert!(with_kernels.contains("<td>matmul</td>") && with_kernels.contains("25.0 %"), "{with_kernels}");
    }
}
