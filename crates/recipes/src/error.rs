//! Why a recipe cannot go on: one message for a person, and who has to act.

use std::error::Error;
use std::fmt;

use miette::{Diagnostic, IntoDiagnostic, Report};

use crate::config::ConfigError;

/// A message for a person, with what would help, and the kind of failure for a script.
#[derive(Debug)]
pub struct Failure {
    report: Report,
    kind: FailureKind,
}

/// Who has to act on a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request cannot be carried out as written: wrong usage, configuration or input.
    Invalid,
    /// Something failed on the way: a full disk, a device error.
    Failed,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
struct Message {
    message: String,
    #[help]
    help: Option<String>,
}

impl Failure {
    /// The request is wrong, as `message` says; `help` says what would be right.
    pub fn invalid(message: impl Into<String>, help: impl Into<String>) -> Self {
        let message = Message { message: message.into(), help: Some(help.into()) };
        Self { report: Report::new(message), kind: FailureKind::Invalid }
    }

    /// Who has to act.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The message with its causes and its help, to be printed by `miette`.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.report.source()
    }
}

/// Results whose errors become a [`Failure`].
pub trait FailureExt<T> {
    /// The error means that the request is wrong.
    ///
    /// # Errors
    /// The error as a [`Failure`] of the kind [`FailureKind::Invalid`].
    fn invalid(self) -> Result<T, Failure>;
    /// The error means that something failed on the way.
    ///
    /// # Errors
    /// The error as a [`Failure`] of the kind [`FailureKind::Failed`].
    fn failed(self) -> Result<T, Failure>;
}

impl<T, E: Error + Send + Sync + 'static> FailureExt<T> for Result<T, E> {
    fn invalid(self) -> Result<T, Failure> {
        self.into_diagnostic().map_err(|report| Failure { report, kind: FailureKind::Invalid })
    }

    fn failed(self) -> Result<T, Failure> {
        self.into_diagnostic().map_err(|report| Failure { report, kind: FailureKind::Failed })
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { report: error.into(), kind: FailureKind::Invalid }
    }
}
