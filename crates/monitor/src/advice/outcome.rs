//! Outcome of one rule.

use super::change::Change;
use super::finding::{Gain, Severity};

/// Outcome of one rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// The run has the problem.
    Found(Problem),
    /// A fact is not known that the rule needs. The text is the reason.
    Abstained(String),
    /// The run does not have the problem.
    Healthy,
}

impl Outcome {
    pub(super) fn abstained(reason: &str) -> Self {
        Self::Abstained(reason.into())
    }
}

/// Problem of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Problem {
    /// Share of the wall time that the problem takes.
    pub(super) share: f64,
    /// Severity of the finding; `None` if it follows from the share.
    pub(super) severity: Option<Severity>,
    pub(super) evidence: Vec<String>,
    pub(super) change: Option<Change>,
    pub(super) together: Vec<Change>,
    pub(super) gain: Option<Gain>,
    pub(super) hint: Option<String>,
}

impl Problem {
    /// Creates a problem that takes `share` of the wall time.
    pub(super) fn new(share: f64, evidence: String) -> Self {
        Self { share: share.clamp(0.0, 1.0), evidence: vec![evidence], ..Self::default() }
    }

    pub(super) fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the change, and the share of the wall time that it saves if that is known. The gain is at most the share of
    /// the problem.
    pub(super) fn change(mut self, change: Option<Change>, saved: Option<f64>) -> Self {
        self.gain = change.as_ref().and(saved).and_then(|saved| Gain::within(saved, self.share));
        self.change = change;
        self
    }

    /// Sets a change that `change` needs.
    pub(super) fn together(mut self, change: Option<Change>) -> Self {
        self.together.extend(change);
        self
    }

    pub(super) fn found(self) -> Outcome {
        Outcome::Found(self)
    }
}
