//! Finding of a rule: what it saw, what to change, and what the change brings.

use std::fmt;

use serde::Serialize;

use super::change::Change;

/// Share of the wall time from which a finding is a warning.
pub(super) const WARNING_SHARE: f64 = 0.1;
/// Share of the wall time from which a finding is critical.
const CRITICAL_SHARE: f64 = 0.2;
/// Smallest gain that is promised. A smaller one is lost in the noise between two runs.
const GAIN_MIN: f64 = 0.005;

/// Severity of a finding: the share of the wall time that it is about, or that the run itself failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Less than 10 % of the wall time.
    Minor,
    /// From 10 % of the wall time.
    Warning,
    /// From 20 % of the wall time.
    Critical,
    /// The run failed. Its speed matters after that.
    Serious,
}

impl Severity {
    /// Returns the severity of a finding about `share` of the wall time.
    pub fn for_share(share: f64) -> Self {
        match share {
            _ if share >= CRITICAL_SHARE => Self::Critical,
            _ if share >= WARNING_SHARE => Self::Warning,
            _ => Self::Minor,
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Minor => "MINOR",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Serious => "SERIOUS",
        })
    }
}

/// Expected gain of a change. It promises less than the rule computes, so that a run can confirm it.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub struct Gain {
    /// Share of the wall time that is expected to go away, from 0 to 1.
    pub share: f64,
}

impl Gain {
    /// Creates a gain of at most `limit`; `None` if it is too small to promise.
    pub(super) fn within(share: f64, limit: f64) -> Option<Self> {
        let share = share.min(limit);
        (share.is_finite() && share >= GAIN_MIN).then_some(Self { share })
    }

    /// Returns how many times as fast the run is with the change.
    pub fn speedup(&self) -> f64 {
        1.0 / (1.0 - self.share)
    }
}

/// Finding of a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// Severity, which follows from `share` for all rules but `run-end` and `unexplained`.
    pub severity: Severity,
    /// What the finding says, for people.
    pub title: String,
    /// Share of the wall time that the finding is about, from 0 to 1. The gain is never larger.
    pub share: f64,
    /// Measurements that the finding comes from, one sentence each.
    pub evidence: Vec<String>,
    /// Proposed change of the configuration; `None` if no key helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
    /// Changes of further keys without which `change` brings nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Change>,
    /// Expected gain of the change; `None` if it cannot be predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<Gain>,
    /// What else a person can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Finding {
    /// Returns all changes of the finding.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.change.iter().chain(&self.together)
    }
}
