//! Advice as a page for people.

use std::fmt;

use plimsoll_core::{Seconds, TimeOwner, counted};

use super::finding::{Finding, Severity};
use super::measured::{START_STEPS, percent};
use super::report::Advice;

/// Indentation of the lines below the first line of a finding.
const INDENT: &str = "          ";
/// Share of the time from which the page names an owner.
const NAMED_SHARE: f64 = 0.01;

impl Advice {
    /// Formats the advice as a page, with terminal colors if `has_color` is set.
    pub fn page(&self, has_color: bool) -> String {
        let mut page = self.head();
        for finding in &self.findings {
            page += &format!("\n{}", block(finding, has_color));
        }
        if self.findings.is_empty() {
            page += "\nno findings\n";
        }
        if !self.healthy.is_empty() {
            page += &format!("\nhealthy: {}\n", self.healthy.join(", "));
        }
        page + &self.abstentions()
    }

    fn head(&self) -> String {
        let steps = counted(self.steps, "step");
        let seconds = Seconds(self.seconds);
        let run = plain(&self.run);
        let mut head = format!("run {run}: {steps} in {seconds}, without the first {START_STEPS} after each start\n");
        let share = |owner: TimeOwner| self.times.share(owner);
        let owners =
            self.times.ranked().into_iter().map(|(owner, _)| owner).filter(|owner| share(*owner) >= NAMED_SHARE);
        let owners: Vec<String> = owners.map(|owner| format!("{} {owner}", percent(share(owner)))).collect();
        if !owners.is_empty() {
            head += &format!("time: {}\n", owners.join(", "));
        }
        head
    }

    /// Lists the rules that could not judge the run; rules with the same reason are on one line.
    fn abstentions(&self) -> String {
        let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
        for abstention in &self.abstained {
            match lines.iter_mut().find(|(reason, _)| *reason == abstention.reason) {
                Some((_, rules)) => rules.push(abstention.rule),
                None => lines.push((&abstention.reason, vec![abstention.rule])),
            }
        }
        let line = |(reason, rules): (&str, Vec<&str>)| format!("  {}: {}\n", rules.join(", "), plain(reason));
        let lines: String = lines.into_iter().map(line).collect();
        if lines.is_empty() { lines } else { format!("\nnot judged:\n{lines}") }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.page(false))
    }
}

fn block(finding: &Finding, has_color: bool) -> String {
    let (on, off) = if has_color { (escape(finding.severity), "\u{1b}[0m") } else { ("", "") };
    let mut block = format!("{on}{:<8}{off}  {}  ({})\n", finding.severity, finding.title, finding.rule);
    let changes = finding.changes().map(|change| format!("change: {change}"));
    let gain = finding
        .gain
        .map(|gain| format!("gain: about {} of the time, {:.2} times as fast", percent(gain.share), gain.speedup()));
    for line in finding.evidence.iter().cloned().chain(changes).chain(gain).chain(finding.hint.clone()) {
        block += &format!("{INDENT}{}\n", plain(&line));
    }
    block
}

/// Returns the terminal's code for the color of `severity`. The words differ too.
fn escape(severity: Severity) -> &'static str {
    match severity {
        Severity::Minor => "\u{1b}[2m",
        Severity::Warning => "\u{1b}[33m",
        Severity::Critical | Severity::Serious => "\u{1b}[1;31m",
    }
}

/// Replaces control characters by spaces: names of runs and processes are on the page, and a terminal must not execute
/// them.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
