//! Advice for a run: the findings of all rules.

use std::collections::BTreeSet;

use plimsoll_core::TimeShares;
use serde::Serialize;

use super::facts::RunFacts;
use super::finding::{Finding, Severity};
use super::measured::{Measured, START_STEPS, STEPS_MIN};
use super::outcome::{Outcome, Problem};
use super::rules::{FAILED, RULES, Rule};

/// Version of the serialized form of [`Advice`]. It grows when a field changes its meaning or goes away.
const SCHEMA_VERSION: u32 = 1;

/// Advice for a run. It prints as a page for people, and serializes for programs.
///
/// Each rule is in exactly one of `findings`, `abstained` and `healthy`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Advice {
    /// Version of this form: 1.
    pub schema_version: u32,
    /// Name of the run.
    pub run: String,
    /// Number of steps that were judged. The first 10 steps after each start are left out.
    pub steps: u64,
    /// Wall time of these steps in seconds.
    pub seconds: f64,
    /// Times of these steps by owner, in seconds.
    pub times: TimeShares,
    /// Findings: the most severe first, then the largest gain. No two findings change the same key.
    pub findings: Vec<Finding>,
    /// Rules that could not judge the run.
    pub abstained: Vec<Abstention>,
    /// Stable names of the rules that found nothing.
    pub healthy: Vec<&'static str>,
}

/// Rule that could not judge the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Abstention {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// Reason, as part of a sentence.
    pub reason: String,
}

/// Applies all rules to the facts about a run.
pub fn advise(facts: &RunFacts) -> Advice {
    let run = Measured::new(facts);
    let mut advice = Advice {
        schema_version: SCHEMA_VERSION,
        run: facts.name.clone(),
        steps: run.steps.len() as u64,
        seconds: run.times.total(),
        times: run.times,
        findings: Vec::new(),
        abstained: Vec::new(),
        healthy: Vec::new(),
    };
    let is_short = run.steps.len() < STEPS_MIN;
    for rule in std::iter::once(&FAILED).chain(RULES) {
        let needs_steps = rule.id != FAILED.id;
        let outcome = match needs_steps && is_short {
            true => Outcome::Abstained(too_short(run.steps.len())),
            false => (rule.check)(&run),
        };
        match outcome {
            Outcome::Found(problem) => advice.findings.push(finding(rule, problem)),
            Outcome::Abstained(reason) => advice.abstained.push(Abstention { rule: rule.id, reason }),
            Outcome::Healthy => advice.healthy.push(rule.id),
        }
    }
    sort(&mut advice.findings);
    if remove_repeated_changes(&mut advice.findings) {
        sort(&mut advice.findings);
    }
    advice
}

fn too_short(steps: usize) -> String {
    let counted = plimsoll_core::counted(steps as u64, "measured step");
    format!("{counted} after the first {START_STEPS}, and {STEPS_MIN} are needed")
}

fn finding(rule: &Rule, problem: Problem) -> Finding {
    let Problem { share, severity, evidence, change, together, gain, hint } = problem;
    let severity = severity.unwrap_or_else(|| Severity::for_share(share));
    Finding { rule: rule.id, severity, title: rule.title.into(), share, evidence, change, together, gain, hint }
}

fn sort(findings: &mut [Finding]) {
    let gain = |finding: &Finding| finding.gain.map_or(0.0, |gain| gain.share);
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(gain(b).total_cmp(&gain(a))));
}

/// Removes changes of keys that an earlier finding changes. Returns whether it removed one.
fn remove_repeated_changes(findings: &mut [Finding]) -> bool {
    let (mut taken, mut has_removed) = (BTreeSet::new(), false);
    for finding in findings {
        let keys: Vec<String> = finding.changes().map(|change| change.key.clone()).collect();
        let repeated = keys.iter().find(|key| taken.contains(*key));
        if let Some(key) = repeated {
            finding.hint = Some(format!("Another finding changes `{key}`, which may help here too."));
            (finding.change, finding.gain, has_removed) = (None, None, true);
            finding.together.clear();
        } else {
            taken.extend(keys);
        }
    }
    has_removed
}
