//! Report of all checks as a page for people.

use std::fmt;

use super::check::CheckStatus;
use super::report::{CheckReport, DoctorReport, MachineSummary};
use plimsoll_core::Bytes;

/// Width of a status word and the space after it.
const STATUS_WIDTH: usize = 6;

impl DoctorReport {
    /// Formats the report as a page, with terminal colors if `color` is set.
    pub fn page(&self, color: bool) -> String {
        let mut page = String::new();
        if let Some(machine) = &self.machine {
            page += &format!("{machine}\n\n");
        }
        let width = self.checks.iter().map(|check| check.id.chars().count()).max().unwrap_or(0);
        for check in &self.checks {
            push_check(&mut page, check, width, color);
        }
        page + &format!("\n{}\n", self.verdict())
    }

    /// Returns the counts of all results, such as `1 failed, 2 warnings, 5 passed, 3 skipped`.
    fn verdict(&self) -> String {
        let count = |status, one: &str, many: &str| match self.count(status) {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        };
        let parts = [
            count(CheckStatus::Fail, "failed", "failed"),
            count(CheckStatus::Warn, "warning", "warnings"),
            count(CheckStatus::Pass, "passed", "passed"),
            count(CheckStatus::Skip, "skipped", "skipped"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "no checks".into() } else { parts.join(", ") }
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.page(false))
    }
}

impl fmt::Display for MachineSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} logical CPUs, {} of memory", self.system, self.logical_cpus, Bytes(self.usable_memory))?;
        for (is_so, word) in [(self.container, "container"), (self.wsl, "WSL")] {
            if is_so {
                write!(f, ", {word}")?;
            }
        }
        if let Some(driver) = &self.driver {
            write!(f, ", driver {driver}")?;
        }
        for gpu in &self.gpus {
            write!(f, "\n{}", gpu.name)?;
            if let Some(memory) = gpu.memory {
                write!(f, ", {}", Bytes(memory))?;
            }
        }
        Ok(())
    }
}

fn push_check(page: &mut String, check: &CheckReport, width: usize, color: bool) {
    let outcome = &check.outcome;
    let (on, off) = if color { (escape(outcome.status), "\u{1b}[0m") } else { ("", "") };
    let indent = " ".repeat(STATUS_WIDTH + width + 2);
    let mut lines = outcome.finding.lines();
    let first = plain(lines.next().unwrap_or_default());
    *page += &format!("{on}{}{off}  {:<width$}  {first}", outcome.status, check.id);
    for line in lines {
        *page += &format!("\n{indent}{}", plain(line));
    }
    for (n, line) in outcome.fix.iter().flat_map(|fix| fix.lines()).enumerate() {
        let label = if n == 0 { "fix: " } else { "     " };
        *page += &format!("\n{indent}{label}{}", plain(line));
    }
    page.push('\n');
}

/// Returns the terminal's code for the color of `status`. The words differ too, so a page without colors says the same.
fn escape(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Skip => "\u{1b}[2m",
        CheckStatus::Pass => "\u{1b}[32m",
        CheckStatus::Warn => "\u{1b}[33m",
        CheckStatus::Fail => "\u{1b}[1;31m",
    }
}

/// Replaces control characters by spaces: names of processes and values of variables are in the page, and a terminal
/// must not execute them.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
