//! One check of the machine or the program, and its outcome.

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Time limit of a check that does not set its own. A healthy driver answers within one second, and a person waits ten.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// The check does not apply to this machine.
    Skip,
    /// The check found nothing wrong.
    Pass,
    /// Training works, and is slower or less safe than it could be.
    Warn,
    /// Training does not work, or a GPU cannot be used.
    Fail,
}

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Skip => "SKIP",
            Self::Pass => "PASS",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// Outcome of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Result of the check.
    pub status: CheckStatus,
    /// What the check found, in one sentence.
    pub finding: String,
    /// What a person can do about it; `None` if there is nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Measured values, for programs.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

impl Outcome {
    /// Creates an outcome without fix and details.
    pub fn new(status: CheckStatus, finding: impl Into<String>) -> Self {
        Self { status, finding: finding.into(), fix: None, details: Map::new() }
    }

    /// Creates the outcome of a check that found nothing wrong.
    pub fn pass(finding: impl Into<String>) -> Self {
        Self::new(CheckStatus::Pass, finding)
    }

    /// Creates the outcome of a check that found something that makes training slower or less safe.
    pub fn warn(finding: impl Into<String>) -> Self {
        Self::new(CheckStatus::Warn, finding)
    }

    /// Creates the outcome of a check that found something that prevents training.
    pub fn fail(finding: impl Into<String>) -> Self {
        Self::new(CheckStatus::Fail, finding)
    }

    /// Creates the outcome of a check that does not apply, with the reason.
    pub fn skip(reason: impl Into<String>) -> Self {
        Self::new(CheckStatus::Skip, reason)
    }

    /// Sets what a person can do.
    #[must_use]
    pub fn with_fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds a value for programs.
    #[must_use]
    pub fn with_detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.into(), value.into());
        self
    }
}

/// Time that a running check has.
#[derive(Clone, Copy, Debug)]
pub struct CheckContext {
    deadline: Instant,
}

impl CheckContext {
    /// Creates the context of a check that begins now.
    pub fn new(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit }
    }

    /// Returns the time that is left; zero after the time limit. A check that measures for some time stops early if
    /// little is left, because a partial result says more than none.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// Work of a check.
type Work = Box<dyn FnOnce(&CheckContext) -> Outcome + Send>;

/// One check of the machine or the program.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_monitor::doctor::{Check, Outcome};
///
/// let check = Check::new("dictionary", "dictionary of the tokenizer", |_| Outcome::pass("512 words"))
///     .with_limit(Duration::from_secs(2));
/// assert_eq!(check.id, "dictionary");
/// ```
pub struct Check {
    /// Stable name for programs, in lower case with hyphens.
    pub id: &'static str,
    /// Subject of the check, for people.
    pub title: &'static str,
    /// Time after which the check counts as not answered.
    pub limit: Duration,
    /// Work of the check, which runs on its own thread.
    pub run: Work,
}

impl Check {
    /// Creates a check with a time limit of 10 seconds.
    ///
    /// # Panics
    /// If `id` is not in lower case with single hyphens.
    pub fn new(
        id: &'static str,
        title: &'static str,
        run: impl FnOnce(&CheckContext) -> Outcome + Send + 'static,
    ) -> Self {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        assert!(id.split('-').all(is_word), "`{id}` is not in lower case with single hyphens");
        Self { id, title, limit: DEFAULT_LIMIT, run: Box::new(run) }
    }

    /// Sets the time limit.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("id", &self.id).field("limit", &self.limit).finish_non_exhaustive()
    }
}
