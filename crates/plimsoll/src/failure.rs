//! How a command fails: one message for a person, one exit code for a script.

use std::process::ExitCode;

use miette::{Diagnostic, Report};

use crate::config::ConfigError;

/// A message and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    report: Report,
    code: u8,
}

/// The codes of [`Failure`]s: 1 where something failed on the way.
const FAILED: u8 = 1;
/// Where what was asked for cannot be done as written.
const WRONG: u8 = ConfigError::EXIT_CODE;

/// A message of our own, with what would help.
#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{message}")]
pub(crate) struct Message {
    message: String,
    #[help]
    help: Option<String>,
}

impl Failure {
    /// What was asked for is wrong, as `message` says; `help` says what would be right.
    pub(crate) fn wrong(message: impl Into<String>, help: impl Into<String>) -> Self {
        let message = Message { message: message.into(), help: Some(help.into()) };
        Self { report: Report::new(message), code: WRONG }
    }

    /// Prints the message on standard error and gives the exit code.
    pub(crate) fn print(self) -> ExitCode {
        eprintln!("{:?}", self.report);
        ExitCode::from(self.code)
    }
}

/// Results whose errors become a [`Failure`].
pub(crate) trait Told<T> {
    /// The person asked for something wrong: usage, configuration, input. Exit code 2.
    fn wrong(self) -> Result<T, Failure>;
    /// Something failed on the way. Exit code 1.
    fn failed(self) -> Result<T, Failure>;
}

impl<T, E: std::error::Error + Send + Sync + 'static> Told<T> for Result<T, E> {
    fn wrong(self) -> Result<T, Failure> {
        self.map_err(|error| Failure { report: Report::msg_of(error), code: WRONG })
    }
    fn failed(self) -> Result<T, Failure> {
        self.map_err(|error| Failure { report: Report::msg_of(error), code: FAILED })
    }
}

/// A report of an error that is no diagnostic, with its causes.
trait MessageOf {
    fn msg_of(error: impl std::error::Error + Send + Sync + 'static) -> Self;
}

impl MessageOf for Report {
    fn msg_of(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        use miette::IntoDiagnostic;
        Err::<(), _>(error).into_diagnostic().expect_err("it is an error")
    }
}

/// Reports that may hold a mistake in the configuration.
pub(crate) trait ToldReport<T> {
    fn told(self) -> Result<T, Failure>;
}

impl<T> ToldReport<T> for Result<T, Report> {
    fn told(self) -> Result<T, Failure> {
        self.map_err(|report| {
            let code = if report.downcast_ref::<ConfigError>().is_some() { WRONG } else { FAILED };
            Failure { report, code }
        })
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { report: error.into(), code: WRONG }
    }
}
