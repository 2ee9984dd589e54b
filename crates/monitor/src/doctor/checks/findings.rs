//! Several findings of one check, as one outcome.

use serde_json::Value;

use crate::doctor::check::{CheckStatus, Outcome};

/// Reason to skip a check of GPUs. The check `driver` says why there is none.
pub(super) const NO_GPU: &str = "there is no GPU; see `driver`";

/// Findings of a check that looks at several things. The worst decides the result.
#[derive(Debug, Default)]
pub(super) struct Findings {
    worst: Option<CheckStatus>,
    texts: Vec<String>,
    fixes: Vec<String>,
    details: Vec<(&'static str, Value)>,
}

impl Findings {
    pub(super) fn warn(&mut self, text: impl Into<String>, fix: impl Into<String>) {
        self.add(CheckStatus::Warn, text.into(), fix.into());
    }

    pub(super) fn fail(&mut self, text: impl Into<String>, fix: impl Into<String>) {
        self.add(CheckStatus::Fail, text.into(), fix.into());
    }

    pub(super) fn detail(&mut self, key: &'static str, value: impl Into<Value>) {
        self.details.push((key, value.into()));
    }

    /// Returns the outcome: `good` if nothing was found.
    pub(super) fn or(self, good: Outcome) -> Outcome {
        let mut outcome = match self.worst {
            None => good,
            Some(status) => Outcome::new(status, self.texts.join("\n")),
        };
        if !self.fixes.is_empty() {
            outcome = outcome.with_fix(self.fixes.join("\n"));
        }
        self.details.into_iter().fold(outcome, |outcome, (key, value)| outcome.with_detail(key, value))
    }

    fn add(&mut self, status: CheckStatus, text: String, fix: String) {
        self.worst = self.worst.max(Some(status));
        self.texts.push(text);
        if !self.fixes.contains(&fix) {
            self.fixes.push(fix);
        }
    }
}
